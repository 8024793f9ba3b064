//! Sends and receives in progress, and the buffers that MPI reads and writes meanwhile.
//!
//! Owns every such buffer, and releases one only after its requests are complete. The buffers of requests
//! that cannot be completed are kept until the process ends.

use std::ffi::c_int;
use std::ops::Range;

use mpi_sys::{MPI_Request, MPI_Status};

use super::comm::{Comm, check, outcome};
use ftsort_core::transport::mpi_api::{Look, Outcome, RecvBuffer, Request};
use ftsort_core::transport::numbered::Numbered;
use ftsort_core::transport::recv_buffers::RecvBuffers;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;

/// The memory that an MPI request uses.
enum Use {
    /// Keeps the bytes of a send alive.
    Send(Slice),
    /// A part of a buffer.
    Receive(RecvBuffer),
}

struct Open {
    raw: MPI_Request,
    uses: Use,
}

#[derive(Default)]
pub struct Requests {
    open: Numbered<Open>,
    recv_buffers: RecvBuffers<Buffer>,
    /// Requests that were abandoned, but that MPI still has.
    stuck: Vec<Open>,
}

/// The peer and the tag of a message.
#[derive(Clone, Copy)]
pub struct Peer {
    pub place: c_int,
    pub tag: c_int,
}

impl Requests {
    fn keep(&mut self, raw: MPI_Request, uses: Use) -> Request {
        Request(self.open.add(Open { raw, uses }))
    }

    pub fn add_buffer(&mut self, bytes: usize) -> Result<RecvBuffer> {
        Ok(self.recv_buffers.add(Buffer::unset(bytes)?))
    }

    pub fn take_buffer(&mut self, buffer: RecvBuffer) -> Buffer {
        self.recv_buffers.take_buffer(buffer)
    }

    pub fn release(&mut self, buffer: RecvBuffer) {
        self.recv_buffers.release(buffer);
    }

    pub fn send(&mut self, comm: &Comm, peer: Peer, payload: Slice) -> Result<Request> {
        // SAFETY: a constant of the MPI library.
        let mut raw = unsafe { mpi_sys::RSMPI_REQUEST_NULL };
        // SAFETY: the payload lives in `open` until the request is complete, and slices never change.
        let code = unsafe {
            mpi_sys::MPI_Isend(
                payload.as_ptr().cast(),
                payload.len() as c_int,
                mpi_sys::RSMPI_UINT8_T,
                peer.place,
                peer.tag,
                comm.raw(),
                &mut raw,
            )
        };
        // A failed peer is reported again when the request is tested.
        let _ = outcome(code, "MPI_Isend")?;
        Ok(self.keep(raw, Use::Send(payload)))
    }

    pub fn receive(
        &mut self,
        comm: &Comm,
        peer: Peer,
        buffer: RecvBuffer,
        range: Range<usize>,
    ) -> Result<Request> {
        let into = &mut self.recv_buffers.open(buffer)[range];
        // SAFETY: a constant of the MPI library.
        let mut raw = unsafe { mpi_sys::RSMPI_REQUEST_NULL };
        // SAFETY: the buffer stays in `recv_buffers`, untouched, until no request writes to it. Receives that
        // share bytes are those into scratch space, which is never read.
        let code = unsafe {
            mpi_sys::MPI_Irecv(
                into.as_mut_ptr().cast(),
                into.len() as c_int,
                mpi_sys::RSMPI_UINT8_T,
                peer.place,
                peer.tag,
                comm.raw(),
                &mut raw,
            )
        };
        let _ = outcome(code, "MPI_Irecv")?;
        Ok(self.keep(raw, Use::Receive(buffer)))
    }

    pub fn test(&mut self, request: Request) -> Result<Look> {
        let Some(open) = self.open.get_mut(request.0) else {
            panic!("{request:?} is unknown");
        };
        let look = look(&mut open.raw)?;
        if look != Look::Pending {
            self.close(request);
        }
        Ok(look)
    }

    fn close(&mut self, request: Request) {
        if let Some(Use::Receive(buffer)) = self.open.remove(request.0).map(|open| open.uses) {
            self.recv_buffers.close(buffer);
        }
    }

    pub fn cancel(&mut self, request: Request) -> Result<()> {
        let Some(open) = self.open.get_mut(request.0) else {
            return Ok(());
        };
        // SAFETY: the request is owned and active; it is tested to its end afterwards.
        check(unsafe { mpi_sys::MPI_Cancel(&mut open.raw) }, "MPI_Cancel")
    }

    pub fn abandon(&mut self, request: Request) {
        self.stuck.extend(self.open.remove(request.0));
    }
}

fn look(request: &mut MPI_Request) -> Result<Look> {
    let mut flag: c_int = 0;
    // SAFETY: MPI_Status is plain data for which all zero is valid; MPI fills it in.
    let mut status: MPI_Status = unsafe { std::mem::zeroed() };
    // SAFETY: the request is owned by this object.
    let code = unsafe { mpi_sys::MPI_Test(request, &mut flag, &mut status) };
    if outcome(code, "MPI_Test")? == Outcome::Failed {
        // MPI has completed it with the error.
        return Ok(Look::Failed);
    }
    if flag == 0 {
        return Ok(Look::Pending);
    }
    let mut count: c_int = 0;
    // SAFETY: the status was filled in by MPI_Test.
    let code = unsafe { mpi_sys::MPI_Get_count(&status, mpi_sys::RSMPI_UINT8_T, &mut count) };
    check(code, "MPI_Get_count")?;
    Ok(Look::Complete(count.max(0) as usize))
}

impl Drop for Requests {
    fn drop(&mut self) {
        // MPI may read and write these for as long as the process lives.
        let open = self.open.take_all();
        for open in open.chain(std::mem::take(&mut self.stuck)) {
            match open.uses {
                Use::Send(payload) => std::mem::forget(payload),
                Use::Receive(buffer) => self.recv_buffers.leak(buffer),
            }
        }
    }
}
