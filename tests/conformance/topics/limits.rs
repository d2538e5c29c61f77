//! The largest job: `-z`, and bodies at its limit and above.

use crate::case::{Case, code, script};
use crate::mark;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        script("the_default_limit_is_65535", "a: stats => max-job-size: 65535"),
        script(
            "a_body_at_the_limit",
            "a: put 0 0 60 10 | 1234567890 -> INSERTED 1
             a: peek 1 -> FOUND 1 10 | 1234567890",
        )
        .flags(&["-z", "10"]),
        script(
            "a_body_over_the_limit_is_swallowed",
            "a: put 0 0 60 11 | 12345678901 -> JOB_TOO_BIG
             a: list-tube-used -> USING default",
        )
        .habit()
        .flags(&["-z", "10"]),
        script(
            "a_body_over_the_limit_is_swallowed_whatever_its_bytes",
            r"a: put 0 0 60 20 | stats\r\nquit\r\nquit\r\nqu\r\c -> JOB_TOO_BIG
              a: list-tube-used -> USING default",
        )
        .habit()
        .flags(&["-z", "10"]),
        script(
            "the_trailer_of_a_swallowed_body_is_not_looked_at",
            r"a: put 0 0 60 11 | 12345678901ab\c -> JOB_TOO_BIG
              a: list-tube-used -> USING default",
        )
        .habit()
        .flags(&["-z", "10"]),
        script(
            "the_size_is_checked_before_trailing_garbage",
            r"a: put 0 0 60 11x | 12345678901 -> JOB_TOO_BIG
              a: list-tube-used -> USING default
              a: put 0 0 60 10x -> BAD_FORMAT",
        )
        .habit()
        .flags(&["-z", "10"]),
        script(
            "a_job_too_big_uses_no_id_up",
            "a: put 0 0 60 11 | 12345678901 -> JOB_TOO_BIG
             a: put 0 0 60 10 | 1234567890 -> INSERTED 1",
        )
        .habit()
        .flags(&["-z", "10"]),
        script(
            "a_job_too_big_counts_as_a_put_and_makes_no_producer",
            "a: put 0 0 60 11 | 12345678901 -> JOB_TOO_BIG
             a: stats => cmd-put: 1, total-jobs: 0, current-producers: 0",
        )
        .habit()
        .flags(&["-z", "10"]),
        script(
            "job_too_big_comes_after_its_body",
            r"a: put 0 0 60 11 | 123456789\c ->
              b: list-tube-used -> USING default
              a: 01\r\c ->
              b: list-tube-used -> USING default
              a: \n\c -> JOB_TOO_BIG",
        )
        .habit()
        .flags(&["-z", "10"]),
        script(
            "a_limit_of_0_takes_empty_bodies",
            r"a: stats => max-job-size: 0
              a: put 0 0 60 0 | \r\n\c -> INSERTED 1
              a: put 0 0 60 1 | x -> JOB_TOO_BIG",
        )
        .habit()
        .flags(&["-z", "0"]),
        script("a_limit_below_0_is_the_highest", "a: stats => max-job-size: 1073741824")
            .habit()
            .flags(&["-z", "-1"]),
        script("the_highest_limit", "a: stats => max-job-size: 1073741824")
            .habit()
            .flags(&["-z", "1073741824"]),
        script("a_limit_above_the_highest_is_cut_to_it", "a: stats => max-job-size: 1073741824")
            .habit()
            .flags(&["-z", "1073741825"]),
        script("the_last_of_two_limits_counts", "a: stats => max-job-size: 20")
            .habit()
            .flags(&["-z", "10", "-z20"]),
    ];
    cases.push(
        code("a_body_at_the_default_limit_and_over_it", |bench| {
            for (size, reply) in
                [(65_535, "INSERTED 1\r\n"), (65_536, "JOB_TOO_BIG\r\n"), (200_000, "JOB_TOO_BIG\r\n")]
            {
                let body = "x".repeat(size);
                let put = format!("put 0 0 60 {size}\r\n{body}\r\n");
                bench.client("a")?.exchange(put.as_bytes(), reply.as_bytes())?;
            }
            bench.play("a: list-tube-used -> USING default")
        })
        .habit(),
    );
    cases.push(
        code("a_body_of_10_megabytes", |bench| {
            let size = 10_000_000;
            let body: Vec<u8> = (0..size).map(|at: u32| (at % 253) as u8).collect();
            let put = [format!("put 0 0 60 {size}\r\n").as_bytes(), &body, b"\r\n"].concat();
            let client = bench.client("a")?;
            client.exchange(&put, b"INSERTED 1\r\n")?;
            let reserved = [format!("RESERVED 1 {size}\r\n").as_bytes(), &body, b"\r\n"].concat();
            client.exchange(b"reserve\r\n", &reserved)?;
            bench.play("a: delete 1 -> DELETED")
        })
        .mark(mark::BODIES)
        .flags(&["-z", "20000000"]),
    );
    cases.push(
        code("a_body_being_sent_is_not_changed_by_its_deletion", |bench| {
            // More than the socket's buffers hold, so that the server is still sending it when the job is deleted.
            let size = 8_000_000;
            let body = "o".repeat(size);
            let client = bench.client("a")?;
            client.exchange(format!("put 0 0 600 {size}\r\n{body}\r\n").as_bytes(), b"INSERTED 1\r\n")?;
            client.send(b"peek 1\r\n")?;
            let other = "n".repeat(size);
            let b = bench.client("b")?;
            b.exchange(b"delete 1\r\n", b"DELETED\r\n")?;
            b.exchange(format!("put 0 0 600 {size}\r\n{other}\r\n").as_bytes(), b"INSERTED 2\r\n")?;
            bench.client("a")?.expect(format!("FOUND 1 {size}\r\n{body}\r\n").as_bytes())?;
            bench.finish()
        })
        .mark(mark::BODIES)
        .deviation("freed-body")
        .flags(&["-z", "20000000"]),
    );
    cases.push(
        code("without_a_descriptor_left_the_server_idles_and_serves_on", |bench| {
            bench.steps("a: put 0 0 60 1 | x -> INSERTED 1\ncontrol: list-tube-used -> USING default")?;
            bench.server().limit_descriptors(20)?;
            // The kernel completes these connections, even if the server cannot accept them.
            let address = bench.server().address();
            let more: Result<Vec<_>, _> = (0..40).map(|_| address.open_socket()).collect();
            bench.require_idle()?;
            bench.steps("a: peek 1 -> FOUND 1 1 | x")?;
            drop(more?);
            bench.play("until a: stats => current-connections: 2\nb: peek 1 -> FOUND 1 1 | x")
        })
        .ours()
        .deviation("emfile-spin"),
    );
    cases.push(
        code("five_hundred_connections", |bench| {
            let mut clients = Vec::new();
            for _ in 0..500 {
                let mut client = bench.connect()?;
                client.exchange(b"list-tube-used\r\n", b"USING default\r\n")?;
                clients.push(client);
            }
            bench.steps("a: stats => current-connections: 501")?;
            drop(clients);
            bench.play("until a: stats => current-connections: 1")
        })
        .mark(mark::STATS),
    );
    cases
}
