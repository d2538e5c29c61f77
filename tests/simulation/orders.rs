//! Orders of the API beside clients: when a task is over, and that the orders break no rule for clients. In debug
//! builds each of the first turns ends with a sweep over all invariants of server, queue and log.

use beanstalkd::simulation::{
    AsOf, Control, Filter, JobAction, JobWalk, Order, Progress, PutOrder, PutRefusal, Selection, Task, TaskId,
};
use beanstalkd_binlog::SyncPolicy;
use beanstalkd_queue::FlushScope;
use beanstalkd_types::clock::NS_PER_S;
use beanstalkd_types::job::{Body, JobId, JobState, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tube_name::TubeName;

use beanstalkd_testkit::disk::SimDisk;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::simulated::{Connection, SimulatedServer};

const FILE_BYTES: u64 = 65_536;

fn harness(sync: SyncPolicy) -> SimulatedServer {
    let mut harness = SimulatedServer::start_on(SimDisk::default(), sync, FILE_BYTES);
    harness.executor_mut().accept_orders(0);
    harness
}

fn order(harness: &mut SimulatedServer, order: Order) -> Option<TaskId> {
    harness.server.executor_mut().order(order, harness.now)
}

fn task(harness: &SimulatedServer, id: TaskId) -> Task {
    harness.executor().tasks().get(id).expect("it was a moment ago").clone()
}

fn put(tube: &str, bytes: usize) -> Order {
    Order::Put(PutOrder {
        tube: TubeName::parse(tube.as_bytes()).unwrap(),
        body: Body::from(vec![b'x'; bytes]),
        priority: Priority(3),
        delay_s: 0.into(),
        ttr_s: 10.into(),
        tags: Vec::new(),
    })
}

#[test]
fn a_task_is_over_once_its_changes_are_on_the_disk() {
    let mut harness = harness(SyncPolicy::EachCommit);
    while harness.help() {}
    let id = order(&mut harness, put("default", 1)).unwrap();
    harness.turn([]);
    assert_eq!(harness.queue().figures().jobs.total(), 1, "the job is there");
    assert!(!task(&harness, id).is_over(), "and not on the disk");
    while harness.help() {}
    assert_eq!(task(&harness, id).progress, Progress::Done);
    assert_eq!(task(&harness, id).job, Some(JobId(1)));
}

#[test]
fn a_worker_that_waits_gets_what_an_order_puts_or_kicks() {
    let mut harness = harness(SyncPolicy::Every(50));
    let worker = harness.connect();
    harness.say(&worker, "watch w\r\nreserve\r\n");
    order(&mut harness, put("w", 4)).unwrap();
    harness.turn([]);
    while harness.help() {}
    assert_eq!(worker.received(), "RESERVED 1 4\r\nxxxx\r\n");
    harness.say(&worker, "bury 1 0\r\nreserve\r\n");
    order(&mut harness, Order::Change(JobAction::Kick, Selection::Jobs(vec![JobId(1)].into_iter()))).unwrap();
    harness.turn([]);
    while harness.help() {}
    assert_eq!(worker.received(), "RESERVED 1 4\r\nxxxx\r\n");
    order(&mut harness, Order::Change(JobAction::Delete, Selection::Jobs(vec![JobId(1)].into_iter())))
        .unwrap();
    harness.turn([]);
    assert_eq!(harness.say(&worker, "delete 1\r\n"), "NOT_FOUND\r\n");
}

#[test]
fn a_full_disk_ends_an_order_and_what_was_done_stays() {
    let mut harness = harness(SyncPolicy::EachCommit);
    while harness.help() {}
    harness.disk.set_room(Some(harness.disk.used()));
    let mut last = Progress::Done;
    for _ in 0..2000 {
        let id = order(&mut harness, put("default", 100)).expect("the one before is over");
        // The log tries several times to make a file.
        for _ in 0..20 {
            harness.turn([]);
            while harness.help() {}
            if task(&harness, id).is_over() {
                break;
            }
            harness.now = harness.now.plus_seconds(1);
        }
        last = task(&harness, id).progress;
        if last != Progress::Done {
            break;
        }
    }
    assert_eq!(last, Progress::Failed(PutRefusal::OutOfMemory.into()));
    assert!(harness.queue().figures().jobs.total() > 0);
}

#[test]
fn orders_that_wait_for_room_change_every_job() {
    const JOBS: u64 = 600;
    const TUBES: [&str; 2] = ["default", "another"];
    let mut harness = harness(SyncPolicy::Every(50));
    while harness.help() {}
    let client = harness.connect();
    let job = format!("put 0 0 60 90\r\n{}\r\n", "x".repeat(90));
    harness.say(&client, job.repeat(JOBS as usize));
    let mut waited = 0;
    for round in 1..20 {
        // The order before it uses up the turn's budget for orders.
        let kick = Order::Change(JobAction::Kick, Selection::Jobs(vec![JobId(1); 520].into_iter()));
        let kicks = order(&mut harness, kick).unwrap();
        let there = TUBES[round % 2];
        let action = JobAction::Move(TubeName::parse(there.as_bytes()).unwrap());
        let moves = if round % 3 == 0 {
            let as_of = AsOf { next_id: JobId(JOBS + 1), at: harness.now };
            let from = TubeName::parse(TUBES[1 - round % 2].as_bytes()).unwrap();
            let walk = JobWalk::new(from, JobState::Ready, Filter::all(as_of), None);
            Order::Change(action, Selection::Counted(Box::new(walk), JOBS))
        } else {
            let jobs: Vec<JobId> = (1..=JOBS).map(JobId).collect();
            Order::Change(action, Selection::Jobs(jobs.into_iter()))
        };
        let moves = order(&mut harness, moves).unwrap();
        harness.turn([]);
        waited += u32::from(task(&harness, moves).done < JOBS);
        while harness.help() {}
        harness.pass(NS_PER_S);
        while harness.help() {}
        assert_eq!(task(&harness, kicks).skipped, 520);
        let Task { progress, done, skipped, .. } = task(&harness, moves);
        assert_eq!((progress, done, skipped), (Progress::Done, JOBS, 0), "round {round}");
        let queue = harness.queue();
        let is_there = |id| queue.job(JobId(id)).is_some_and(|job| job.tube.as_str() == there);
        assert!((1..=JOBS).all(is_there), "round {round}");
    }
    assert!(waited > 1, "the log had room for all of them");
}

/// A random order, about the few jobs and tubes that exist.
fn any_order(harness: &SimulatedServer, random: &mut Random) -> Order {
    let tube = TubeName::parse([b"default", b"another"][random.below(2) as usize]).unwrap();
    let number = random.below(4) as u32;
    let action = match random.below(5) {
        0 => JobAction::Kick,
        1 => JobAction::Delete,
        2 => JobAction::Move(TubeName::parse([b"default", b"another"][random.below(2) as usize]).unwrap()),
        3 => JobAction::Priority(Priority(number)),
        _ => JobAction::Delay(Seconds::new(number, 250 * random.below(4) as u16)),
    };
    let queue = harness.queue();
    match random.below(8) {
        0 => put(tube.as_str(), random.below(110) as usize),
        1 => Order::Pause(tube, number.into()),
        2 => Order::Flush(tube, [FlushScope::Buried, FlushScope::All][random.below(2) as usize]),
        3 => Order::Drain(random.below(2) == 0),
        4 | 5 => {
            let newest = queue.next_id().0;
            let jobs: Vec<JobId> = (0..=random.below(20)).map(|_| JobId(random.below(newest) + 1)).collect();
            Order::Change(action, Selection::Jobs(jobs.into_iter()))
        }
        _ => {
            let states = [JobState::Ready, JobState::Reserved, JobState::Delayed, JobState::Buried];
            let state = states[random.below(4) as usize];
            let filter = Filter::all(AsOf { next_id: queue.next_id(), at: harness.now });
            let walk = JobWalk::new(tube, state, filter, None);
            Order::Change(action, Selection::Counted(Box::new(walk), random.below(30)))
        }
    }
}

fn any_command(random: &mut Random) -> String {
    let id = random.below(60) + 1;
    match random.below(12) {
        0..=3 => format!("put {} {} 2 1\r\nx\r\n", random.below(3), random.below(3)),
        4 => "reserve-with-timeout 1\r\n".to_owned(),
        5 => format!("reserve-job {id}\r\n"),
        6 => format!("bury {id} 1\r\n"),
        7 => format!("release {id} 0 {}\r\n", random.below(3)),
        8 => format!("delete {id}\r\n"),
        9 => "kick 3\r\n".to_owned(),
        10 => {
            ["use another\r\n", "use default\r\n", "watch another\r\n"][random.below(3) as usize].to_owned()
        }
        _ => "flush-tube default\r\n".to_owned(),
    }
}

fn run(seed: u64) -> usize {
    let mut random = Random::new(seed);
    let sync = [SyncPolicy::EachCommit, SyncPolicy::Every(50), SyncPolicy::Never][random.below(3) as usize];
    let mut harness = harness(sync);
    let clients: Vec<Connection> = (0..3).map(|_| harness.connect()).collect();
    let mut tasks = Vec::new();
    for _ in 0..120 {
        for client in &clients {
            if random.below(2) == 0 {
                client.send(any_command(&mut random).as_bytes());
            }
        }
        if random.below(3) == 0 {
            let wanted = any_order(&harness, &mut random);
            tasks.extend(order(&mut harness, wanted));
        }
        if let (0, Some(&id)) = (random.below(9), tasks.last()) {
            harness.executor_mut().stop(id);
        }
        harness.turn(&clients);
        if random.below(3) > 0 {
            while harness.help() {}
        }
        harness.now = harness.now + random.below(900_000_000);
        clients.iter().for_each(|client| drop(client.received()));
    }
    for _ in 0..5 {
        harness.turn([]);
        while harness.help() {}
        harness.now = harness.now.plus_seconds(1);
    }
    let (executor, last) = (harness.executor(), tasks.len());
    for id in tasks.into_iter().skip(last.saturating_sub(10)) {
        assert!(executor.tasks().get(id).is_some_and(Task::is_over), "{id:?} comes to an end");
    }
    assert_eq!(executor.queue().figures().clients, clients.len(), "orders leave no client behind");
    last
}

#[test]
fn orders_and_clients_do_not_harm_each_other() {
    let tasks = super::run_seeds(16, |seed, _| run(seed));
    super::assert_seen("tasks", tasks.iter().sum::<usize>() as u64, tasks.len(), tasks.len());
}
