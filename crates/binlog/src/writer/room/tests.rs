//! What is needed is never given to records, in any order.

use super::*;
use crate::tags::Name;

fn spare(bytes: u64) -> Spare {
    Spare { index: 1, bytes, nonce: 0 }
}

#[test]
fn room_for_deletes_is_never_given_to_records() {
    let mut room = Room::default();
    room.use_file(4096, FRONT_BYTES);
    let free = 4096 - FRONT_BYTES - TAIL_BYTES;
    assert_eq!(room.find(free - 2 * 84, 1), Some(Target::Current));
    assert_eq!(room.find(free - 2 * 84 + 1, 1), None);
    assert_eq!(room.find_before(free - 84, 1), Some(Target::Current), "but for the spare marker");
    room.add_spare(spare(4096));
    assert_eq!(room.find(free - 2 * 84 + 1, 1), Some(Target::Current), "the delete fits into the spare");
    room.take(free);
    assert_eq!(room.find(free - 2 * 84, 1), Some(Target::Spare(0)));
    assert_eq!(room.find(free, 1), None);
}

#[test]
fn a_record_larger_than_a_file_gets_one_that_holds_all_the_deletes_too() {
    let mut room = Room::default();
    room.use_file(4096, FRONT_BYTES);
    room.add_spare(spare(4096));
    let bytes = length_of_next_file(4096, 100_000, 300);
    assert_eq!(room.find(100_000, 300), None);
    room.add_spare(Spare { index: 2, ..spare(bytes) });
    assert_eq!(room.find(100_000, 300), Some(Target::Spare(1)));
    assert_eq!(bytes % 4096, 0);
    assert_eq!(length_of_next_file(4096, 1000, 1_000_000), 4096);
}

#[test]
fn files_made_ahead_are_counted_until_they_are_used_or_taken_back() {
    let mut room = Room::default();
    assert_eq!((room.newest_spare(), room.spare_bytes()), (None, 0));
    for (index, bytes) in [(7, 4096), (8, 8192), (9, 20_480)] {
        room.add_spare(Spare { index, bytes, nonce: 0 });
        assert_eq!(room.newest_spare(), Some(index));
    }
    assert_eq!((room.spare_bytes(), room.spare_count()), (32_768, 3));
    assert_eq!(room.drop_newest_spare().map(|spare| spare.index), Some(9));
    room.check_invariants(0, 0, 0);
    assert_eq!((room.newest_spare(), room.spare_bytes()), (Some(8), 12_288));
    assert_eq!(room.next_spare().map(|spare| spare.index), Some(7));
    room.check_invariants(0, 0, 0);
    assert_eq!((room.newest_spare(), room.spare_bytes(), room.spare_count()), (Some(8), 8192, 1));
}

#[test]
fn a_file_made_for_a_record_holds_it_whatever_its_length() {
    let least = 4096 - FRONT_BYTES - TAIL_BYTES - SHORT_BYTES + 1;
    for bytes in least..12_500 {
        let mut room = Room::default();
        room.add_spare(spare(length_of_next_file(4096, bytes, 3)));
        assert_eq!(room.find(bytes, 3), Some(Target::Spare(0)), "{bytes} bytes");
    }
}

#[test]
fn the_next_file_is_made_while_one_is_still_free() {
    let mut room = Room::default();
    room.use_file(8192, FRONT_BYTES);
    assert!(room.check_level(8192, 0));
    room.add_spare(spare(8192));
    room.need(39);
    assert!(!room.check_level(8192, 0));
    room.need(60);
    assert!(room.check_level(8192, 0));
}

#[test]
fn deletes_of_several_short_records_find_room_in_any_order() {
    for first in 0..60 {
        for size in 1..=MAX_DELETE_UNITS {
            let mut room = Room::default();
            assert_eq!(room.units_for(JobRoom { side_effects: 1, first_reservation: false }), 1);
            room.use_file(FRONT_BYTES + TAIL_BYTES + first * SHORT_BYTES, FRONT_BYTES);
            room.add_spare(spare(4096));
            room.add_spare(Spare { index: 2, ..spare(4096) });
            room.check_invariants(0, 0, 0);
            // The maximum that fits, whatever the ends of the files are.
            room.need((0..).take_while(|&units| room.find_before(0, units).is_some()).last().unwrap());
            while room.needed > 0 {
                assert!(room.is_enough());
                let units = size.min(room.needed);
                let target = room.find_before(units * SHORT_BYTES, room.needed - units);
                let target = target.unwrap_or_else(|| panic!("{first}: no room for {units}"));
                assert_eq!(room.find_for_needed(units), Some(target));
                if let Target::Spare(passed) = target {
                    for _ in 0..=passed {
                        let next = room.next_spare().unwrap();
                        room.use_file(next.bytes, FRONT_BYTES);
                    }
                }
                room.take(units * SHORT_BYTES);
                room.release(units);
            }
        }
    }
}

#[test]
fn room_is_reserved_for_the_first_reservation_of_a_job_that_expires_until_it_comes() {
    let expiring = TagSet { expires_after_s: Some(9.into()), ..TagSet::NONE };
    let grouped = TagSet { group: Name::check(b"g"), ..TagSet::NONE };
    let both = TagSet { group: Name::check(b"g"), ..expiring };
    for (tags, was_reserved, units, first) in [
        (&expiring, false, 1, true),
        (&expiring, true, 0, false),
        (&grouped, false, 1, false),
        (&grouped, true, 1, false),
        (&both, false, 2, true),
        (&both, true, 1, false),
        (&TagSet::NONE, false, 0, false),
    ] {
        let mut room = Room::needed_by(1, 0);
        room.reserve_for(JobId(1), JobRoom::of(7, tags, was_reserved));
        assert_eq!((room.needed - 1, room.jobs().count()), (units, usize::from(units > 0)));
        assert_eq!(room.release_first_reservation(JobId(1)), first);
        assert!(!room.release_first_reservation(JobId(1)), "there is one first reservation");
        assert_eq!(room.needed - 1, units - u64::from(first));
        room.check_invariants(1, 0, 0);
        room.release_for(JobId(1));
        assert_eq!((room.needed, room.jobs().count()), (1, 0));
    }
}

#[test]
fn the_room_of_a_job_survives_its_packing_into_a_byte() {
    for side_effects in 0..MAX_DELETE_UNITS as u8 {
        for first_reservation in [false, true] {
            let room = JobRoom { side_effects, first_reservation };
            assert_eq!(room.packed().map_or(JobRoom::default(), JobRoom::from_packed), room);
        }
    }
}

#[test]
fn needed_room_is_never_given_to_records_and_is_released_once() {
    let mut room = Room::needed_by(3, 2);
    room.use_file(4096, FRONT_BYTES);
    let free = 4096 - FRONT_BYTES - TAIL_BYTES;
    assert_eq!(room.find(free - 6 * SHORT_BYTES, 0), Some(Target::Current));
    assert_eq!(room.find(free - 6 * SHORT_BYTES, 1), None);
    assert_eq!(room.find_for_marker(), Some(Target::Current));
    room.take(free - 5 * SHORT_BYTES);
    assert_eq!((room.find_for_marker(), room.is_enough()), (None, true), "the rest is for what is needed");
    room.take(SHORT_BYTES);
    assert_eq!((room.find_for_repair(), room.is_enough()), (Some(Target::Current), false));
    for left in (0..5).rev() {
        assert_eq!(room.find_for_needed(1).is_some(), left > 0, "they take what room there is");
        if left > 0 {
            room.take(SHORT_BYTES);
        }
        room.release(1);
    }
    assert_eq!(room.needed, 0);
}
