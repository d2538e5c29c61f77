//! put: bodies, their trailer, and the effects of the header.

use crate::case::{Case, code, script};
use crate::mark;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        script(
            "ids_count_from_1",
            "a: put 0 0 10 1 | x -> INSERTED 1
             b: put 0 0 10 1 | x -> INSERTED 2
             a: delete 2 -> DELETED
             a: put 0 0 10 1 | x -> INSERTED 3",
        )
        .fresh()
        .habit(),
        script(
            "an_empty_body",
            r"a: put 0 0 10 0 | \r\n\c -> INSERTED 1
              a: peek 1 -> FOUND 1 0 | \r\n\c
              a: reserve -> RESERVED 1 0 | \r\n\c",
        ),
        script(
            "a_body_of_any_bytes_comes_back_as_it_was",
            r"a: put 0 0 10 12 | \0\r\n\x80\xff\r\r\n\n\p\s\0 -> INSERTED 1
              a: reserve -> RESERVED 1 12 | \0\r\n\x80\xff\r\r\n\n\p\s\0",
        )
        .mark(mark::BODIES),
        script(
            "a_body_that_looks_like_commands_is_a_body",
            r"a: put 0 0 10 12 | quit\r\nstats\r -> INSERTED 1
              a: peek 1 -> FOUND 1 12 | quit\r\nstats\r",
        )
        .mark(mark::BODIES),
        script(
            "a_body_longer_than_announced_is_expected_crlf_and_its_rest_a_command",
            r"a: put 0 0 10 1 | xyzlist-tube-used -> EXPECTED_CRLF | USING default",
        )
        .habit(),
        script(
            "a_body_shorter_than_announced_takes_the_next_bytes",
            r"a: put 0 0 10 5 | abc | de -> EXPECTED_CRLF | UNKNOWN_COMMAND",
        )
        .habit(),
        script("a_trailer_of_two_lfs_is_expected_crlf", r"a: put 0 0 10 1 | x\n\n\c -> EXPECTED_CRLF"),
        script("a_trailer_of_lf_cr_is_expected_crlf", r"a: put 0 0 10 1 | x\n\r\c -> EXPECTED_CRLF"),
        script("a_trailer_of_two_crs_is_expected_crlf", r"a: put 0 0 10 1 | x\r\r\c -> EXPECTED_CRLF"),
        script(
            "a_bad_trailer_uses_an_id_up_and_leaves_no_job",
            r"a: put 0 0 10 1 | xyz\c -> EXPECTED_CRLF
              a: peek 1 -> NOT_FOUND
              a: stats => total-jobs: 0, current-jobs-ready: 0, cmd-put: 1
              a: put 0 0 10 1 | x -> INSERTED 2",
        )
        .fresh()
        .habit(),
        script(
            "an_announced_body_without_bytes_gets_no_reply",
            r"a: put 0 0 10 5 ->
              b: list-tube-used -> USING default
              a: hel\c ->
              b: stats => current-jobs-ready: 0, total-jobs: 0
              a: lo -> INSERTED 1",
        ),
        script(
            "an_unfinished_job_does_not_exist_for_others",
            r"a: put 0 0 10 5 | hel\c ->
              b: peek-ready -> NOT_FOUND
              b: reserve-with-timeout 0 -> TIMED_OUT
              b: stats-job 1 -> NOT_FOUND
              b: peek 1 -> NOT_FOUND
              b: delete 1 -> NOT_FOUND
              b: kick-job 1 -> NOT_FOUND
              b: reserve-job 1 -> NOT_FOUND
              a: lo -> INSERTED 1
              b: peek 1 -> FOUND 1 5 | hello",
        )
        .ours()
        .deviation("unfinished-job"),
        script(
            "a_put_whose_client_leaves_at_once_is_kept",
            "a: put 0 0 10 5 | hello ->
             a: <close>
             until b: stats => total-jobs: 1, current-jobs-ready: 1, current-connections: 1
             b: peek 1 -> FOUND 1 5 | hello",
        )
        .fresh()
        .habit(),
        script(
            "a_client_that_leaves_in_its_body_leaves_no_job",
            r"a: put 0 0 10 5 | hel\c ->
              a: <close>
              until b: stats => current-connections: 1
              b: stats => current-jobs-ready: 0, total-jobs: 0
              b: put 0 0 10 1 | x -> INSERTED 2
              b: peek 1 -> NOT_FOUND",
        )
        .fresh()
        .habit(),
        script(
            "a_ttr_of_0_becomes_1",
            "a: put 0 0 0 1 | x -> INSERTED 1
             a: stats-job 1 => ttr: 1",
        ),
        script(
            "the_header_fixes_priority_delay_and_ttr",
            "a: put 4294967295 4294967295 4294967295 1 | x -> INSERTED 1
             a: stats-job 1 => pri: 4294967295, delay: 4294967295, ttr: 4294967295, state: delayed
             a: put 1023 0 77 1 | x -> INSERTED 2
             a: stats-job 2 => pri: 1023, delay: 0, ttr: 77, state: ready",
        ),
        script(
            "a_header_with_too_few_numbers_is_bad_format",
            r"a: put 0 0 10 -> BAD_FORMAT
              a: put 0 0 -> BAD_FORMAT
              a: put 0 -> BAD_FORMAT
              a: put\s -> BAD_FORMAT
              a: put -> UNKNOWN_COMMAND
              a: putx -> UNKNOWN_COMMAND",
        )
        .habit(),
        script(
            "a_refused_header_leaves_its_body_to_be_commands",
            "a: put 0 0 10 x | list-tube-used -> BAD_FORMAT | USING default",
        )
        .habit(),
        script(
            "a_put_that_is_refused_makes_no_producer",
            "a: put 0 0 10 x -> BAD_FORMAT
             a: stats => current-producers: 0, cmd-put: 0
             a: put 0 0 10 1 | y -> INSERTED 1
             a: stats => current-producers: 1, cmd-put: 1",
        )
        .habit(),
        script(
            "the_tube_is_the_one_used_when_the_header_came",
            "a: use t -> USING t
             a: put 0 0 10 1 | x -> INSERTED 1
             a: use u -> USING u
             a: stats-job 1 => tube: t",
        ),
        script(
            "a_put_serves_a_waiting_client_at_once",
            "a: reserve ->
             waiting 1
             b: put 0 0 10 5 | hello -> INSERTED 1
             a: -> RESERVED 1 5 | hello
             b: stats-job 1 => state: reserved, reserves: 1
             b: stats => current-jobs-ready: 0, current-jobs-reserved: 1, current-waiting: 0",
        ),
        script(
            "a_delayed_put_does_not_serve_a_waiting_client",
            "a: reserve ->
             waiting 1
             b: put 0 600 10 5 | hello -> INSERTED 1
             b: stats-job 1 => state: delayed
             waiting 1",
        ),
    ];
    for size in [1, 2, 100, 223, 224, 225, 4096, 16_384, 65_534, 65_535] {
        cases.push(
            code(format!("a_body_of_{size}_bytes"), move |bench| {
                let body: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
                let put = [format!("put 0 0 10 {size}\r\n").as_bytes(), &body, b"\r\n"].concat();
                let found = [format!("FOUND 1 {size}\r\n").as_bytes(), &body, b"\r\n"].concat();
                let reserved = [format!("RESERVED 1 {size}\r\n").as_bytes(), &body, b"\r\n"].concat();
                let client = bench.client("a")?;
                client.exchange(&put, b"INSERTED 1\r\n")?;
                client.exchange(b"peek 1\r\n", &found)?;
                client.exchange(b"reserve\r\n", &reserved)?;
                bench.finish()
            })
            .mark(mark::BODIES),
        );
    }
    cases
}
