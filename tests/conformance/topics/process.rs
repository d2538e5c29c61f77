//! The process: flags, exit codes, output, and sockets.

use crate::case::{Bench, Case, Needs, code};
use beanstalkd_testkit::client::Failure;
use beanstalkd_testkit::server::{Address, Ended, run_to_end, run_until, spawn, wait_until_accepting};
use rustix::process::Signal;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;

/// Command lines with which the process exits at once: a name, the arguments, the exit code, and a text that its output
/// must contain.
const ENDS: &[(&str, &[&str], i32, &str)] = &[
    ("an_unknown_flag", &["-x"], 5, "-x"),
    ("an_unknown_flag_after_a_known_one", &["-Vx"], 5, "x"),
    ("an_unknown_argument", &["foo"], 5, "foo"),
    ("an_argument_after_flags", &["-V", "foo"], 5, "foo"),
    ("no_address_after_l", &["-l"], 5, "-l"),
    ("no_port_after_p", &["-p"], 5, "-p"),
    ("no_size_after_z", &["-z"], 5, "-z"),
    ("no_size_after_s", &["-s"], 5, "-s"),
    ("no_time_after_f", &["-f"], 5, "-f"),
    ("no_user_after_u", &["-u"], 5, "-u"),
    ("no_directory_after_b", &["-b"], 5, "-b"),
    ("a_size_of_letters", &["-z", "x"], 5, "x"),
    ("a_size_with_letters_behind", &["-z", "10x"], 5, "10x"),
    ("an_empty_size", &["-z", ""], 5, ""),
    ("a_binlog_size_of_letters", &["-s", "x"], 5, "x"),
    ("a_sync_time_of_letters", &["-f", "x"], 5, "x"),
    ("a_user_that_does_not_exist", &["-l", "unix:{dir}/own", "-u", "no-such-user"], 33, "no-such-user"),
    ("a_directory_that_does_not_exist", &["-l", "unix:{dir}/own", "-b", "{dir}/nowhere"], 10, "nowhere"),
    ("an_address_that_is_none", &["-l", "256.256.256.256", "-p", "0"], 111, ""),
    ("an_address_of_another_machine", &["-l", "192.0.2.1", "-p", "0"], 111, ""),
    ("a_port_that_is_none", &["-l", "127.0.0.1", "-p", "no-such-service"], 111, ""),
    ("a_socket_in_a_directory_that_does_not_exist", &["-l", "unix:{dir}/nowhere/s"], 111, ""),
    ("a_socket_where_a_file_lies", &["-l", "unix:{dir}/stderr"], 111, ""),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, arguments, status, said) in ENDS {
        cases.push(code(format!("{name}_exits_with_{status}"), move |bench| {
            let ended = run(bench, arguments)?;
            let right = ended.status.code() == Some(*status)
                && ended.stderr.contains(said)
                && ended.stdout.is_empty();
            if right { Ok(()) } else { Err(Failure::new(format!("{ended:?}"))) }
        }));
    }
    cases.extend(texts());
    cases.extend(flags());
    cases.extend(sockets());
    cases.extend(ends());
    cases
}

/// Runs the program under test in a separate directory, beside the bench's server.
fn run(bench: &Bench, arguments: &[&str]) -> Result<Ended, Failure> {
    let directory = tempfile::tempdir()?;
    let own = directory.path().to_string_lossy();
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.replace("{dir}", &own).into()).collect();
    Ok(run_to_end(bench.server().binary(), &arguments, directory.path())?)
}

fn texts() -> Vec<Case> {
    vec![
        code("v_prints_the_version_on_standard_output", |bench| {
            let ended = run(bench, &["-v"])?;
            let right = ended.status.success()
                && ended.stdout.starts_with("beanstalkd ")
                && ended.stdout.ends_with('\n')
                && ended.stdout.lines().count() == 1
                && ended.stderr.is_empty();
            if right { Ok(()) } else { Err(Failure::new(format!("{ended:?}"))) }
        }),
        code("v_names_the_version_of_stats", |bench| {
            let printed = run(bench, &["-v"])?.stdout;
            let version = printed.trim().trim_start_matches("beanstalkd ").to_owned();
            bench.play(&format!("a: stats => version: {version}"))
        }),
        code("v_wins_over_what_follows_it", |bench| {
            let ended = run(bench, &["-v", "-x"])?;
            if ended.status.success() { Ok(()) } else { Err(Failure::new(format!("{ended:?}"))) }
        }),
        code("the_usage_names_each_flag", |bench| {
            let ended = run(bench, &["-h"])?;
            // C prints it on the standard error.
            let usage = if ended.stdout.is_empty() { &ended.stderr } else { &ended.stdout };
            let lacking: Vec<&str> = ["-b", "-f", "-F", "-l", "-p", "-u", "-z", "-s", "-v", "-V", "-h"]
                .into_iter()
                .filter(|flag| !usage.contains(flag))
                .collect();
            let right = ended.status.success() && lacking.is_empty() && usage.starts_with("Use: ");
            if right { Ok(()) } else { Err(Failure::new(format!("lacks {lacking:?}: {usage}"))) }
        }),
        code("an_error_is_followed_by_the_usage_or_says_how_to_get_it", |bench| {
            let ended = run(bench, &["-x"])?;
            let usage = ["Use: ", "--help"].into_iter().any(|word| ended.stderr.contains(word));
            let right = ended.stderr.contains("-x") && usage;
            if right { Ok(()) } else { Err(Failure::new(ended.stderr)) }
        }),
    ]
}

/// Flags with which a server starts and serves.
fn flags() -> Vec<Case> {
    let served = |name: &str, flags: &[&str], steps: &'static str| {
        code(name, move |bench| bench.play(steps)).flags(flags)
    };
    vec![
        served("z_joined", &["-z123"], "a: stats => max-job-size: 123"),
        served("z_apart", &["-z", "123"], "a: stats => max-job-size: 123"),
        served("z_behind_other_flags", &["-VFz", "123"], "a: stats => max-job-size: 123"),
        served("z_joined_behind_other_flags", &["-VFz123"], "a: stats => max-job-size: 123"),
        served("z_with_leading_zeros", &["-z", "00123"], "a: stats => max-job-size: 123"),
        served("verbose", &["-V"], "a: list-tube-used -> USING default"),
        served("very_verbose", &["-VVV"], "a: put 0 0 60 1 | x | reserve -> INSERTED 1 | RESERVED 1 1 | x"),
        served("f0_joined", &["-f0", "-b", "{dir}"], "a: put 0 0 60 1 | x -> INSERTED 1"),
        served("f_apart", &["-f", "10", "-b", "{dir}"], "a: put 0 0 60 1 | x -> INSERTED 1"),
        served("never_sync", &["-F", "-b", "{dir}"], "a: put 0 0 60 1 | x -> INSERTED 1"),
        served("f_without_b", &["-f", "10"], "a: put 0 0 60 1 | x -> INSERTED 1"),
        served("the_removed_flag_c_only_gives_a_warning", &["-c"], "a: list-tube-used -> USING default"),
        served("the_removed_flag_n_only_gives_a_warning", &["-n"], "a: list-tube-used -> USING default"),
        served("s_without_b", &["-s", "8192"], "a: stats => binlog-max-size: 8192"),
        code("a_server_that_spins_before_it_sleeps_becomes_idle", |bench| {
            bench.steps("a: put 0 0 60 1 | x | reserve -> INSERTED 1 | RESERVED 1 1 | x")?;
            bench.require_idle()?;
            // It is woken by time and by clients.
            bench.play("a: reserve-with-timeout 1 -> TIMED_OUT\nb: peek 1 -> FOUND 1 1 | x")
        })
        .needs(Needs::Extension)
        .ours()
        .flags(&["--spin", "50"]),
    ]
}

fn sockets() -> Vec<Case> {
    vec![
        code("a_port_in_use_exits_with_111", |bench| {
            let taken = std::net::TcpListener::bind(("127.0.0.1", 0))?;
            let port = taken.local_addr()?.port().to_string();
            let ended = run(bench, &["-l", "127.0.0.1", "-p", &port])?;
            if ended.status.code() == Some(111) { Ok(()) } else { Err(Failure::new(format!("{ended:?}"))) }
        }),
        code("a_socket_that_nobody_listens_on_is_replaced", |bench| {
            let own = bench.server().directory().join("left-over");
            drop(UnixListener::bind(&own)?);
            let listen = format!("unix:{}", own.display()).into();
            let directory = tempfile::tempdir()?;
            let mut second = spawn(&[], bench.server().binary(), &["-l".into(), listen], directory.path())?;
            wait_until_accepting(&mut second, &Address::Unix(own), directory.path())
                .map_err(|error| error.error)?;
            Ok(())
        }),
        code("a_socket_of_a_living_server_is_left_to_it", |bench| {
            let living = bench.server().directory().join("living");
            let listener = UnixListener::bind(&living)?;
            let before = std::fs::metadata(&living)?.ino();
            let taken_over = || !std::fs::metadata(&living).is_ok_and(|now| now.ino() == before);
            let listen = format!("unix:{}", living.display()).into();
            let directory = tempfile::tempdir()?;
            let binary = bench.server().binary();
            let ended = run_until(binary, &["-l".into(), listen], directory.path(), taken_over)?;
            drop(listener);
            match ended {
                Some(ended) if ended.status.code() == Some(111) => Ok(()),
                other => Err(Failure::new(format!("expected exit code 111: {other:?}"))),
            }
        })
        .ours()
        .deviation("live-socket"),
        code("a_second_server_on_the_same_binlog_exits_with_10", |bench| {
            // A server may accept connections before it has its lock, but it must not answer.
            bench.settle()?;
            let binlog = bench.server().directory().to_string_lossy().into_owned();
            let ended = run(bench, &["-l", "unix:{dir}/own", "-b", &binlog])?;
            let right = ended.status.code() == Some(10);
            if right { Ok(()) } else { Err(Failure::new(format!("{ended:?}"))) }
        })
        .needs(Needs::Persistence)
        .flags(&["-b", "{dir}"]),
    ]
}

fn ends() -> Vec<Case> {
    vec![
        code("sigterm_ends_in_order", |bench| ends_in_order(bench, Signal::TERM)).ours().deviation("sigterm"),
        code("sigint_ends_in_order", |bench| ends_in_order(bench, Signal::INT)).ours().deviation("sigterm"),
        code("a_reader_that_leaves_does_not_end_the_server", |bench| {
            let body = "b".repeat(60_000);
            bench
                .client("a")?
                .exchange(format!("put 0 0 60 60000\r\n{body}\r\n").as_bytes(), b"INSERTED 1\r\n")?;
            for _ in 0..20 {
                let mut client = bench.connect()?;
                client.send("peek 1\r\n".repeat(20).as_bytes())?;
            }
            bench.play("until a: stats => current-connections: 1")
        }),
    ]
}

fn ends_in_order(bench: &mut Bench, signal: Signal) -> Result<(), Failure> {
    bench.steps("a: put 0 0 60 1 | x -> INSERTED 1")?;
    let status = bench.server_mut().stop(signal)?;
    if status.code() == Some(0) { Ok(()) } else { Err(Failure::new(format!("{status}"))) }
}
