//! Far more jobs, tubes and connections than a server usually has: what they cost, and how fast the server still
//! answers. Each is measured once.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Client, parse_reserved, unexpected};
use crate::failure::Failure;
use crate::load::{FILL, Generator, Load, Tubes, Until};
use crate::rows::CONNECTIONS_AT_ONCE;
use crate::rows::tubes::fill;
use crate::runner::{Bench, Figures, column, median, per_command_us};
use crate::server::{Role, Server, Setup};
use crate::table::{Row, Target};

const JOBS: usize = 10_000_000;
const TUBES: usize = 100_000;
const CONNECTIONS: usize = 15_000;
const WATCHED: usize = 1_000;
/// The number of commands sent one by one, to measure a latency.
const ASKED: usize = 1_000;
/// The number of commands sent before their replies are read, to measure processor time.
const DEPTH: usize = 100;
const BATCHES: usize = 200;

/// Measures each server once. A quick run skips this.
fn once<const N: usize>(bench: &Bench, measure: impl Fn(&Server) -> Result<[f64; N], Failure>) -> Figures<N> {
    bench.servers_one_by_one(|contender| {
        if bench.quick {
            Err(Failure::Skipped("not in a quick run"))
        } else {
            measure(&bench.start(contender, Setup::PLAIN)?)
        }
    })
}

/// Like [`once`], but without peers, whose costs grow with the number of jobs and tubes.
fn ours_once<const N: usize>(
    bench: &Bench,
    measure: impl Fn(&Server) -> Result<[f64; N], Failure>,
) -> Figures<N> {
    bench.servers_one_by_one(|contender| match contender.role {
        _ if bench.quick => Err(Failure::Skipped("not in a quick run")),
        Role::Peer => Err(Failure::Skipped("takes more than three minutes on this server")),
        _ => measure(&bench.start(contender, Setup::PLAIN)?),
    })
}

fn rows<const N: usize>(names: [(&str, &'static str); N], figures: &Figures<N>) -> Vec<Row> {
    let row = |(index, (name, unit)): (usize, (&str, &'static str))| {
        Row::new(name, unit, Target::None, column(figures, index))
    };
    names.into_iter().enumerate().map(row).collect()
}

/// Ten million jobs in one tube.
pub fn jobs(bench: &Bench) -> Vec<Row> {
    let figures = ours_once(bench, |server| {
        let before = server.resident_bytes()?;
        let load = Load { tubes: Tubes::Default, ..Load::new(1, 256) };
        let (cpu, outcome) =
            server.cpu_of(|| Generator::connect(server.endpoint(), load)?.run(FILL, Until::Jobs(JOBS)))?;
        let resident = server.resident_bytes()?;
        let mut client = Client::connect(server.address)?;
        let mut reserves_us = Vec::with_capacity(ASKED);
        let mut deletes_us = Vec::with_capacity(ASKED);
        for _ in 0..ASKED {
            let asked = Instant::now();
            client.send(b"reserve\r\n")?;
            let line = client.line()?;
            let Some((id, _)) = parse_reserved(line) else { return Err(unexpected(line)) };
            client.line()?;
            reserves_us.push(asked.elapsed().as_secs_f64() * 1e6);
            let asked = Instant::now();
            client.send(format!("delete {id}\r\n").as_bytes())?;
            client.expect("DELETED")?;
            deletes_us.push(asked.elapsed().as_secs_f64() * 1e6);
        }
        Ok([
            resident / 1e9,
            (resident - before) / JOBS as f64 - Load::BODY_BYTES as f64,
            outcome.elapsed.as_secs_f64(),
            per_command_us(cpu, outcome.commands),
            median(reserves_us),
            median(deletes_us),
        ])
    });
    let names = [
        ("10 M ready jobs of 64 B: resident", "GB"),
        ("… per job beyond the body", "bytes"),
        ("… time to put all of them", "s"),
        ("… CPU per put", "µs"),
        ("… a reserve beside them, p50 of the round trip", "µs"),
        ("… a delete beside them, p50 of the round trip", "µs"),
    ];
    rows(names, &figures)
}

/// A hundred thousand tubes with a job each.
pub fn tubes(bench: &Bench) -> Vec<Row> {
    let figures = ours_once(bench, |server| {
        let started = Instant::now();
        let bytes_each = fill(server, TUBES)? - Load::BODY_BYTES as f64;
        let fill_s = started.elapsed().as_secs_f64();
        let resident = server.resident_bytes()?;
        let mut client = Client::connect(server.address)?;
        let list_ms = median_ms(&mut client, "list-tubes", 9)?;
        let stats_us = median_ms(&mut client, "stats", ASKED)? * 1e3;
        let tube_us = median_ms(&mut client, "stats-tube tube-50000", ASKED)? * 1e3;
        Ok([resident / 1e6, bytes_each, fill_s, list_ms, stats_us, tube_us])
    });
    let names = [
        ("100 k tubes with a job each: resident", "MB"),
        ("… per tube beyond the body", "bytes"),
        ("… time to make them", "s"),
        ("… list-tubes, p50 of the round trip", "ms"),
        ("… stats, p50 of the round trip", "µs"),
        ("… stats-tube, p50 of the round trip", "µs"),
    ];
    rows(names, &figures)
}

/// The median of `count` round trips of `command`.
fn median_ms(client: &mut Client, command: &str, count: usize) -> Result<f64, Failure> {
    let round_trip = |_| {
        let asked = Instant::now();
        client.data(command)?;
        Ok(asked.elapsed().as_secs_f64() * 1e3)
    };
    Ok(median((0..count).map(round_trip).collect::<Result<Vec<f64>, Failure>>()?))
}

/// Fifteen thousand idle connections.
pub fn connections(bench: &Bench) -> Vec<Row> {
    let figures = once(bench, |server| {
        let mut control = Client::connect(server.address)?;
        let before = server.resident_bytes()?;
        let started = Instant::now();
        let mut connections = Vec::with_capacity(CONNECTIONS);
        for index in 1..=CONNECTIONS {
            connections.push(TcpStream::connect(server.address)?);
            if index % CONNECTIONS_AT_ONCE == 0 {
                control.await_stat("current-connections", |count| count == index + 1)?;
            }
        }
        let connect_s = started.elapsed().as_secs_f64();
        let bytes_each = (server.resident_bytes()? - before) / CONNECTIONS as f64;
        let stats_us = median_ms(&mut control, "stats", ASKED)? * 1e3;
        let idle_percent = idle_percent(server)?;
        let started = Instant::now();
        drop(connections);
        control.await_stat("current-connections", |count| count == 1)?;
        Ok([bytes_each, connect_s, stats_us, idle_percent, started.elapsed().as_secs_f64()])
    });
    let names = [
        ("15 k idle connections: resident each", "bytes"),
        ("… time to connect them", "s"),
        ("… stats beside them, p50 of the round trip", "µs"),
        ("… CPU while nothing happens", "% of a core"),
        ("… time until all are closed", "s"),
    ];
    rows(names, &figures)
}

/// The server's processor time over five seconds without requests, in percent of a core.
pub fn idle_percent(server: &Server) -> Result<f64, Failure> {
    let time = Duration::from_secs(5);
    let (cpu, ()) = server.cpu_of(|| {
        thread::sleep(time);
        Ok(())
    })?;
    Ok(cpu.as_secs_f64() / time.as_secs_f64() * 100.0)
}

/// One connection that watches a thousand tubes, and one that watches a single tube.
pub fn watched(bench: &Bench) -> Vec<Row> {
    let figures = once(bench, |server| {
        let mut single = Client::connect(server.address)?;
        let mut many = Client::connect(server.address)?;
        for number in 0..WATCHED {
            many.send(format!("watch watched-{number}\r\n").as_bytes())?;
            many.expect("WATCHING ")?;
        }
        let [none_of_one, none_of_many] = [&mut single, &mut many]
            .map(|client| cost_us(server, client, "reserve-with-timeout 0", "TIMED_OUT"));
        many.send(b"use watched-500\r\n")?;
        many.expect("USING ")?;
        let one_job_us = reserve_and_release_us(server, &mut many)?;
        single.send(b"use default\r\n")?;
        single.expect("USING ")?;
        let beside_us = reserve_and_release_us(server, &mut single)?;
        Ok([none_of_many?, none_of_one?, one_job_us, beside_us])
    });
    let names = [
        ("1,000 tubes watched: CPU of reserve-with-timeout 0, nothing ready", "µs"),
        ("… the same of a connection that watches one", "µs"),
        ("… CPU per command of reserve and release, a job in one of them", "µs"),
        ("… the same of a connection that watches one", "µs"),
    ];
    rows(names, &figures)
}

/// Microseconds of processor time for each `command`, whose reply is `reply`.
fn cost_us(server: &Server, client: &mut Client, command: &str, reply: &str) -> Result<f64, Failure> {
    let commands = format!("{command}\r\n").repeat(DEPTH);
    let (cpu, ()) = server.cpu_of(|| {
        for _ in 0..BATCHES {
            client.send(commands.as_bytes())?;
            for _ in 0..DEPTH {
                client.expect(reply)?;
            }
        }
        Ok(())
    })?;
    Ok(per_command_us(cpu, (BATCHES * DEPTH) as u64))
}

/// Puts one job into the used tube, reserves and releases it many times, and deletes it. Returns microseconds of
/// processor time per command.
fn reserve_and_release_us(server: &Server, client: &mut Client) -> Result<f64, Failure> {
    client.send(b"put 0 0 1000 1\r\nx\r\n")?;
    let line = client.line()?;
    let id = line.strip_prefix(b"INSERTED ").and_then(|id| std::str::from_utf8(id).ok()?.trim().parse().ok());
    let Some(id): Option<u64> = id else { return Err(unexpected(line)) };
    let commands = format!("reserve\r\nrelease {id} 0 0\r\n").repeat(DEPTH);
    let (cpu, ()) = server.cpu_of(|| {
        for _ in 0..BATCHES {
            client.send(commands.as_bytes())?;
            for _ in 0..DEPTH {
                client.expect("RESERVED ")?;
                client.expect("x")?;
                client.expect("RELEASED")?;
            }
        }
        Ok(())
    })?;
    client.send(format!("delete {id}\r\n").as_bytes())?;
    client.expect("DELETED")?;
    Ok(per_command_us(cpu, (2 * BATCHES * DEPTH) as u64))
}
