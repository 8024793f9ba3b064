//! Reuse, donation and accounting of pieces.

use super::process::State;
use super::*;

fn free_piece(len: usize, fill: u8) -> FreePiece {
    let mut map = MmapMut::map_anon(len).unwrap();
    map.fill(fill);
    FreePiece::new(map, 0, len)
}

/// Returns a state that retains these pieces and uses nothing.
fn state_of(free: Vec<FreePiece>) -> State {
    State {
        peak: free.iter().map(FreePiece::bytes).sum(),
        free,
        used: 0,
        retentions: 1,
    }
}

#[test]
fn a_retained_piece_of_about_the_size_is_reused_unchanged() {
    let mut state = state_of(vec![
        free_piece(8 << 20, 1),
        free_piece(6 << 20, 2),
        free_piece(5 << 20, 3),
    ]);
    let address = state.free[1].map.as_ptr();
    let found = state.take(5 << 20 | 1).unwrap();
    assert_eq!((found.map.as_ptr(), found.map[0]), (address, 2));
    assert!(state.take(9 << 20).is_none());
    // Every piece is more than twice as large.
    assert!(state.take(2 << 20).is_none());
    assert_eq!(state.take(5 << 20).map(|piece| piece.map[0]), Some(3));
}

#[test]
#[cfg(target_os = "linux")]
fn retained_pieces_fill_other_pieces_unit_by_unit() {
    let mut state = state_of(vec![free_piece(5 << 20, 1), free_piece(9 << 20, 2)]);
    let mut map = MmapMut::map_anon(16 << 20).unwrap();
    let mut from = 0;
    let mut found = Vec::new();
    while let Some(unit) = first_unit(&map, from, map.len()) {
        from = unit.end;
        let before = state.free_bytes();
        let unit = &mut map[unit];
        if state.fill(unit) {
            assert!(before >= state.free_bytes() + UNIT);
            found.push(unit[1]);
            assert!(unit.iter().all(|byte| [0, unit[1]].contains(byte)));
        }
    }
    let units_of = |fill: u8| found.iter().filter(|byte| **byte == fill).count();
    // The number of whole units depends on the address of a piece.
    assert!((1..=2).contains(&units_of(1)) && (3..=4).contains(&units_of(2)) && units_of(0) == 0);
    // A piece that has donated a part is not reused as a whole.
    assert!(state.take(5 << 20).is_none());
}

#[test]
#[cfg(target_os = "linux")]
fn a_broken_piece_donates_first_and_small_pieces_stay_whole() {
    let mut state = state_of(vec![
        free_piece(5 * UNIT, 1),
        free_piece(5 * UNIT, 2),
        free_piece(1 << 20, 3),
    ]);
    state.free[0].from = UNIT;
    let mut target = map(2 * UNIT).unwrap();
    let (unit, rest) = target.split_at_mut(UNIT);
    assert!(state.fill(unit) && state.fill(&mut rest[..UNIT]));
    assert_eq!((unit[1], rest[1]), (1, 1));
    assert_eq!(state.take(5 * UNIT).map(|piece| piece.map[0]), Some(2));
    assert_eq!(state.take(1 << 20).map(|piece| piece.map[0]), Some(3));
}

#[test]
fn a_piece_serves_somewhat_longer_ones_too() {
    let mut pages = Pages::unset(40 * UNIT).unwrap();
    pages.fill(1);
    let piece = FreePiece::new(pages.map.take().unwrap(), 0, pages.committed.end);
    // The piece is no longer counted by `drop`.
    ProcessPages::get().lock().used -= piece.to;
    let mut state = state_of(vec![piece]);
    assert!(state.take(42 * UNIT).is_none());
    let found = state.take(41 * UNIT).unwrap();
    assert!(found.map.len() >= 41 * UNIT && found.to == 40 * UNIT);
}

#[test]
fn a_mapping_exceeds_the_length_by_less_than_half_a_unit() {
    for len in [
        1 << 20,
        UNIT,
        UNIT + 1,
        UNIT + UNIT / 2,
        3 * UNIT / 2 + 1,
        20 * UNIT + 4097,
    ] {
        let mut map = map(len).unwrap();
        assert!((len..len + UNIT / 2).contains(&map.len()), "{len}");
        map.fill(1);
    }
}

#[test]
fn donatable_memory_consists_of_whole_committed_units() {
    let mut pages = Pages::reserved(5 * UNIT).unwrap();
    assert_eq!(pages.donatable(), 0);
    pages.commit(4 * UNIT, &mut []);
    assert!((3 * UNIT..=4 * UNIT).contains(&pages.donatable()));
    assert_eq!(Pages::zeroed(UNIT / 2).unwrap().donatable(), 0);
}

#[test]
fn retained_and_used_bytes_do_not_exceed_the_peak() {
    let pieces = (0..3).map(|_| free_piece(4 << 20, 0)).collect();
    let mut state = state_of(pieces);
    state.used = 4 << 20;
    let newest = state.free[2].map.as_ptr();
    state.shrink();
    assert_eq!(state.free.len(), 2);
    assert_eq!(state.free[1].map.as_ptr(), newest);
    assert!(state.take(1 << 20).is_none());
    assert_eq!(
        state.take(3 << 20).map(|piece| piece.bytes()),
        Some(4 << 20)
    );
}

#[test]
fn few_bytes_more_than_the_peak_take_no_piece_away() {
    let pieces = [32 << 20, 31 << 20].map(|len| free_piece(len, 0));
    let mut state = state_of(pieces.into());
    assert!(state.take(32 << 20).is_some());
    state.used = 32 << 20;
    state.add_used(1 << 20);
    assert_eq!(state.free.len(), 1);
    state.add_used(1 << 20);
    assert_eq!(state.free.len(), 0);
}

#[test]
fn the_system_may_reclaim_all_pieces_but_the_last_ones() {
    let mut state = state_of(Vec::new());
    let reclaimable = |state: &State| -> Vec<bool> {
        let pieces = state.free.iter();
        pieces.map(|piece| piece.is_reclaimable).collect()
    };
    for (len, expected) in [
        (20 << 20, vec![false]),
        (12 << 20, vec![false, false]),
        (1 << 20, vec![true, false, false]),
        (64 << 20, vec![true, true, true, true]),
        (1 << 20, vec![true, true, true, true, false]),
    ] {
        state.retain(free_piece(len, 1));
        assert_eq!(reclaimable(&state), expected);
    }
    let mut held = state.take(1 << 20).unwrap();
    held.prevent_reclaim(0..1 << 20);
    assert!(!held.is_reclaimable && held.map[0] == 1);
    let mut given = state.take(20 << 20).unwrap();
    given.map.fill(1);
    given.prevent_reclaim(0..20 << 20);
    let written = given.map.iter().filter(|byte| **byte == 0).count();
    assert_eq!(written, (20 << 20) / (4 << 10));
}

#[test]
fn a_reserved_piece_with_a_whole_unit_can_receive_memory() {
    // The mapping is longer than the piece.
    let least = UNIT - UNIT / (SLACK + 1);
    assert!(!Pages::can_receive(least - 1) && Pages::can_receive(least + 1));
    for len in [least, UNIT, UNIT + 1] {
        let mut out = Pages::reserved(len).unwrap();
        let mut source = Pages::zeroed(4 * UNIT).unwrap();
        source.release_around(4 * UNIT..4 * UNIT);
        out.commit(len, &mut [&mut source]);
        assert!(source.committed(4 * UNIT) < 4 * UNIT, "{len}");
    }
}

/// Returns how many of `bytes` are in memory.
#[cfg(target_os = "linux")]
fn resident(bytes: &[u8]) -> usize {
    const PAGE: usize = 4 << 10;
    let mut is_resident = vec![0_u8; bytes.len() / PAGE];
    let start = bytes.as_ptr().cast_mut().cast();
    // SAFETY: the vector has an element for every page.
    let result =
        unsafe { libc::mincore(start, is_resident.len() * PAGE, is_resident.as_mut_ptr()) };
    assert_eq!(result, 0);
    is_resident.iter().filter(|page| **page & 1 != 0).count() * PAGE
}

#[test]
#[cfg(target_os = "linux")]
fn a_reserved_piece_takes_the_memory_of_released_ones() {
    const LEN: usize = 32 << 20;
    const STEP: usize = 1 << 20;
    let mut sources = [Pages::zeroed(LEN).unwrap(), Pages::zeroed(LEN).unwrap()];
    for (fill, source) in (1..).zip(&mut sources) {
        source.fill(fill);
    }
    let mut out = Pages::reserved(2 * LEN).unwrap();
    assert_eq!(out.committed(2 * LEN), 0);
    let mut most = 0;
    for step in 1..=LEN / STEP {
        let [one, other] = &mut sources;
        let read = step * STEP;
        let from = 2 * (read - STEP);
        out.commit(2 * read, &mut [one, other]);
        out[from..2 * read].fill(step as u8);
        for (fill, source) in (1..).zip(&mut sources) {
            assert!(source[read - STEP..].iter().all(|byte| *byte == fill));
            source.release_around(read..LEN);
        }
        let committed: usize = sources.iter().map(|source| source.committed(LEN)).sum();
        let in_memory: usize = sources.iter().map(|source| resident(source)).sum();
        most = most
            .max(committed + out.committed(2 * LEN))
            .max(in_memory + resident(&out[..2 * LEN]));
    }
    for (step, part) in (1..).zip(out[..2 * LEN].chunks(2 * STEP)) {
        assert!(part.iter().all(|byte| *byte == step));
    }
    assert!(most <= 2 * LEN + 5 * UNIT, "{most}");
}

#[test]
fn bytes_that_are_not_released_stay() {
    const LEN: usize = 9 << 20;
    let mut source = Pages::zeroed(LEN).unwrap();
    source.fill(7);
    source.release_around(UNIT + 1..LEN);
    let mut out = Pages::reserved(LEN).unwrap();
    out.commit(LEN, &mut [&mut source]);
    out.fill(9);
    assert!(source[2 * UNIT..].iter().all(|byte| *byte == 7));
    assert!(source.committed(LEN) >= LEN - 2 * UNIT);
}

#[test]
fn released_bytes_on_both_sides_of_the_needed_ones_are_donated() {
    const LEN: usize = 20 << 20;
    let needed = 5 * UNIT + 7..6 * UNIT + 9;
    let mut source = Pages::zeroed(LEN).unwrap();
    source.fill(7);
    source.release_around(needed.clone());
    let mut out = Pages::reserved(LEN).unwrap();
    out.commit(LEN, &mut [&mut source]);
    out[..LEN].fill(9);
    assert!(source[needed].iter().all(|byte| *byte == 7));
    // The needed bytes lie in two units.
    let kept = if cfg!(target_os = "linux") {
        2 * UNIT
    } else {
        LEN
    };
    assert!((kept..=kept + UNIT).contains(&source.committed(LEN)));
}

/// Each unit that has moved can be a mapping of its own, of which the system allows a limited number.
#[test]
fn memory_is_not_moved_beside_very_many_bytes() {
    let mut state = State {
        free: vec![FreePiece::new(map(4 * UNIT).unwrap(), 0, 4 * UNIT)],
        used: usize::MAX - 8 * UNIT,
        peak: usize::MAX,
        retentions: 1,
    };
    let mut unit = map(UNIT).unwrap();
    assert!(!state.may_move() && !state.fill(&mut unit));
    state.used = 0;
    assert!(state.may_move());
    assert_eq!(state.fill(&mut unit), cfg!(target_os = "linux"));
}
