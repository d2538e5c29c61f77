//! The log comes to rest, for a hand-over.

use beanstalkd_binlog::SyncPolicy;
use beanstalkd_types::clock::NS_PER_S;
use beanstalkd_types::job::JobId;

use crate::fixture::Fixture;
use beanstalkd_testkit::disk::SimDisk;

#[test]
fn a_quiesced_log_removes_no_further_files_unless_it_needs_the_room() {
    for needs_room in [false, true] {
        let disk = SimDisk::default();
        let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
        for _ in 0..300 {
            fixture.put().unwrap();
            fixture.commit();
        }
        let before = disk.files().len();
        (1..=300).for_each(|id| fixture.log.append_delete(JobId(id)));
        fixture.commit_alone();
        fixture.log.quiesce(needs_room, fixture.now).unwrap();
        fixture.log.check_invariants();
        let removed = before.saturating_sub(disk.files().len());
        assert_eq!(removed > 5, needs_room, "{removed} of {before} files");
        // If nobody takes over, the log continues.
        fixture.commit();
        assert!(disk.files().len() < 5, "{} files", disk.files().len());
    }
}

/// A file can take minutes to make, and all clients wait.
#[test]
fn a_log_at_rest_has_completed_no_file_unless_it_needs_the_room() {
    for needs_room in [false, true] {
        let disk = SimDisk::default();
        let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
        fixture.commit_alone();
        let before = disk.files().len();
        fixture.log.quiesce(needs_room, fixture.now).unwrap();
        assert_eq!(disk.files().len() > before, needs_room);
        // If nobody takes over, and a change lacks room then, the file is made at once.
        fixture.log.quiesce(true, fixture.now).unwrap();
        assert!(disk.files().len() > before);
        fixture.log.check_invariants();
    }
}

#[test]
fn a_file_that_was_given_up_is_made_soon_if_nobody_takes_over() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
    fixture.commit_alone();
    let before = disk.files().len();
    fixture.log.quiesce(false, fixture.now).unwrap();
    assert_eq!(disk.files().len(), before);
    fixture.reach(fixture.now + NS_PER_S);
    assert!(disk.files().len() > before);
}

#[test]
fn a_log_that_is_closed_does_not_complete_its_next_file() {
    let disk = SimDisk::default();
    let mut fixture = Fixture::open(&disk, SyncPolicy::EachCommit, 4096);
    fixture.put().unwrap();
    fixture.commit_alone();
    let before = disk.operations();
    fixture.log.close(fixture.now).unwrap();
    assert_eq!(disk.operations() - before, 5, "a sync of the record, and a write and a sync of two markers");
}

#[test]
fn a_log_that_is_ready_to_quiesce_needs_nothing_of_the_store() {
    for sync in [SyncPolicy::Never, SyncPolicy::Every(10_000), SyncPolicy::EachCommit] {
        let mut fixture = Fixture::open(&SimDisk::default(), sync, 65536);
        fixture.commit();
        fixture.put().unwrap();
        fixture.commit_alone();
        fixture.log.is_ready_to_quiesce();
        fixture.commit_alone();
        let is_ready = fixture.log.is_ready_to_quiesce();
        assert_eq!(is_ready, sync == SyncPolicy::Never, "{sync:?}: a store that hangs does not sync");
        for _ in 0..2 {
            fixture.help().unwrap();
            fixture.log.is_ready_to_quiesce();
            fixture.commit_alone();
        }
        fixture.help().unwrap();
        assert!(fixture.log.is_ready_to_quiesce(), "{sync:?}: the record, and the marker about its sync");
        let syncs = fixture.log.stats().syncs;
        assert_eq!(
            fixture.log.quiesce(false, fixture.now).ok(),
            Some(false),
            "{sync:?}: no task is in progress"
        );
        assert_eq!(fixture.log.stats().syncs, syncs, "{sync:?}: everything was synced");
    }
}
