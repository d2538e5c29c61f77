//! The log comes to rest, for a hand-over.

use beanstalkd_binlog::SyncPolicy;
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

#[test]
fn a_log_comes_to_rest_in_steps_that_wait_for_nothing() {
    for sync in [SyncPolicy::Never, SyncPolicy::Every(10_000), SyncPolicy::EachCommit] {
        let mut fixture = Fixture::open(&SimDisk::default(), sync, 4096);
        for _ in 0..100 {
            fixture.put().unwrap();
            fixture.commit();
        }
        (1..=100).for_each(|id| fixture.log.append_delete(JobId(id)));
        fixture.log.hold_compaction(true);
        fixture.commit_alone();
        fixture.log.come_to_rest();
        fixture.commit_alone();
        let is_at_rest = fixture.log.come_to_rest();
        assert_eq!(is_at_rest, sync == SyncPolicy::Never, "{sync:?}: a store that hangs does not sync");
        let mut turns = 0;
        while !fixture.log.come_to_rest() {
            fixture.commit_alone();
            fixture.help().unwrap();
            turns += 1;
            assert!(
                turns < 5,
                "{sync:?}: neither the interval of syncs nor the removal of files is waited for"
            );
        }
        let (syncs, files) = (fixture.log.stats().syncs, fixture.log.stats().files);
        assert!(files > 3, "{sync:?}: the {files} files without jobs are still there");
        assert_eq!(
            fixture.log.quiesce(false, fixture.now).ok(),
            Some(false),
            "{sync:?}: nothing is in progress"
        );
        assert_eq!(fixture.log.stats().syncs, syncs, "{sync:?}: everything was synced");
    }
}
