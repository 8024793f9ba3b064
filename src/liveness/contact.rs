//! The contact of a rank: its token, and the addresses of its socket.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::message::Token;
use ftsort_core::transport::watch::{CONTACT_BYTES, Contact};

/// The greatest number of addresses in a contact.
const MOST_ADDRESSES: usize = (CONTACT_BYTES - FIXED) / 4;

/// The bytes before the addresses: the token, the port, and the number of addresses.
const FIXED: usize = 19;

/// Encodes a contact. Addresses for which there is no room are left out.
pub fn encode(token: &Token, port: u16, addresses: &[Ipv4Addr]) -> Contact {
    let mut contact = [0; CONTACT_BYTES];
    let addresses = &addresses[..addresses.len().min(MOST_ADDRESSES)];
    contact[..16].copy_from_slice(token);
    contact[16..18].copy_from_slice(&port.to_le_bytes());
    contact[18] = addresses.len() as u8;
    for (place, address) in contact[FIXED..].chunks_exact_mut(4).zip(addresses) {
        place.copy_from_slice(&address.octets());
    }
    contact
}

/// Returns the token and the addresses of a contact; None if the rank cannot be probed.
pub fn decode(contact: &Contact) -> Option<(Token, Vec<SocketAddrV4>)> {
    let token = contact[..16].try_into().ok()?;
    let port = u16::from_le_bytes([contact[16], contact[17]]);
    let addresses = contact[FIXED..].chunks_exact(4);
    let addresses = addresses.take(usize::from(contact[18])).map(|octets| {
        let address = Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]);
        SocketAddrV4::new(address, port)
    });
    (port != 0).then(|| (token, addresses.collect()))
}

/// Returns the IPv4 addresses of this host's interfaces that are up; the loopback address if there is no other.
pub fn own_addresses() -> Vec<Ipv4Addr> {
    match addresses_of_interfaces() {
        none if none.is_empty() => vec![Ipv4Addr::LOCALHOST],
        addresses => addresses,
    }
}

fn addresses_of_interfaces() -> Vec<Ipv4Addr> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: a place for the head of the list.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the list is live until it is freed, and ends with NULL.
    while let Some(interface) = unsafe { next.as_ref() } {
        next = interface.ifa_next;
        let is_up = interface.ifa_flags & libc::IFF_UP as u32 != 0;
        let is_loopback = interface.ifa_flags & libc::IFF_LOOPBACK as u32 != 0;
        // SAFETY: NULL, or an address that starts with its family.
        let family = unsafe { interface.ifa_addr.as_ref() }.map(|address| address.sa_family);
        if is_up && !is_loopback && family == Some(libc::AF_INET as libc::sa_family_t) {
            // SAFETY: an address of this family has this type; it may not be aligned for it.
            let address = unsafe {
                interface
                    .ifa_addr
                    .cast::<libc::sockaddr_in>()
                    .read_unaligned()
            };
            found.push(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)));
        }
    }
    // SAFETY: the list came from getifaddrs.
    unsafe { libc::freeifaddrs(first) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contact_survives_a_round_trip() {
        let addresses: Vec<Ipv4Addr> = (1..=9).map(|last| Ipv4Addr::new(10, 0, 0, last)).collect();
        let (token, sockets) = decode(&encode(&[7; 16], 99, &addresses)).expect("a contact");
        assert_eq!((token, sockets.len()), ([7; 16], MOST_ADDRESSES));
        assert_eq!(sockets[1], SocketAddrV4::new(addresses[1], 99));
        assert_eq!(decode(&[0; CONTACT_BYTES]), None);
        // A number of addresses that is too large is no reason to read beyond the end.
        assert_eq!(
            decode(&[255; CONTACT_BYTES]).map(|(_, sockets)| sockets.len()),
            Some(7)
        );
    }
}
