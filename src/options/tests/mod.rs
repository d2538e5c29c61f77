//! Command lines and their meaning, in tables.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;

mod tls;

fn serve(line: &[&str]) -> Options {
    match Options::parse(line) {
        Ok(Action::Serve(options)) => *options,
        other => panic!("{line:?}: {other:?}"),
    }
}

fn refused(line: &[&str]) -> String {
    match Options::parse(line) {
        Err(error) => error.to_string(),
        Ok(action) => panic!("{line:?}: {action:?}"),
    }
}

fn binlog(options: &mut Options) -> &mut BinlogOptions {
    options.binlog.as_mut().unwrap()
}

fn metrics(options: &mut Options) -> &mut MetricsOptions {
    options.metrics.as_mut().unwrap()
}

fn admin(options: &mut Options) -> &mut AdminOptions {
    options.admin.as_mut().unwrap()
}

fn tcp(host: &str, port: &str) -> ListenAddress {
    ListenAddress::Tcp { host: Some(host.into()), port: port.into(), is_tls: false }
}

#[test]
fn without_flags_the_defaults_are_those_of_c() {
    let options = serve(&[]);
    assert_eq!(options, Options::default());
    assert_eq!(options.listen.own, Some(tcp("0.0.0.0", "11300")));
    assert_eq!(options.limits.max_job_bytes, 65535);
    assert_eq!(options.binlog_file_bytes, 10_485_760);
    assert_eq!((options.binlog, options.user, options.log.verbosity), (None, None, 0));
}

/// The change that a line makes to the options.
type OptionsChange = fn(&mut Options);

/// Spellings with the same meaning, and their change.
type Spellings = (&'static [&'static [&'static str]], OptionsChange);

fn assert_same(table: &[Spellings]) {
    for (lines, change) in table {
        let mut expected = everything_that_flags_need(&[]);
        change(&mut expected);
        for line in *lines {
            assert_eq!(everything_that_flags_need(line), expected, "{line:?}");
        }
    }
}

#[test]
fn short_long_and_combined_forms_mean_the_same() {
    assert_same(&[
        (&[&["-b", "d"], &["-bd"], &["--binlog", "d"], &["--binlog-dir=d"]], |options| {
            binlog(options).place = BinlogPlace::Directory("d".into());
        }),
        (&[&["-f", "7"], &["-f7"], &["--fsync-ms", "7"], &["-F", "-f7"], &["-Ff7"]], |options| {
            binlog(options).fsync = Fsync::Within(Duration::from_millis(7));
        }),
        (&[&["-f0"], &["-D"], &["--fsync-ms=0"], &["-F", "-D"]], |options| {
            binlog(options).fsync = Fsync::Within(Duration::ZERO);
        }),
        (&[&["-F"], &["--no-fsync"], &["-f", "7", "-F"], &["-DF"]], |options| {
            binlog(options).fsync = Fsync::Never;
        }),
        (&[&["-s", "8192"], &["-s8192"], &["--binlog-file-size", "8192"]], |options| {
            options.binlog_file_bytes = 8192;
        }),
        (&[&["-u", "jo"], &["-ujo"], &["--user", "jo"]], |options| options.user = Some("jo".into())),
        (&[&["-z", "7"], &["-z7"], &["-z", "9", "-z7"], &["--max-job-size", "7"]], |options| {
            options.limits.max_job_bytes = 7;
        }),
        (&[&["-VVV"], &["-V", "-VV"], &["--verbose", "--verbose", "--verbose"]], |options| {
            options.log.verbosity = 3;
        }),
        (&[&["-FVb", "d"], &["-FVbd"], &["-b", "d", "-VF"]], |options| {
            binlog(options).fsync = Fsync::Never;
            options.log.verbosity = 1;
            binlog(options).place = BinlogPlace::Directory("d".into());
        }),
    ]);
}

#[test]
fn options_that_c_lacks_change_what_they_name() {
    assert_same(&[
        (&[&["--recover"]], |options| binlog(options).recover = true),
        (&[&["--wait-for-lock"]], |options| binlog(options).wait_for_lock = true),
        (&[&["--max-connections", "9"]], |options| options.limits.max_connections = Some(9)),
        (&[&["--max-memory", "2k"], &["--max-memory=2048"], &["--max-memory", "2K"]], |options| {
            options.limits.max_memory = MemoryLimit::of(2048);
        }),
        (&[&["--max-memory", "9", "--max-memory", "0"]], |options| {
            options.limits.max_memory = MemoryLimit::Unlimited;
        }),
        (&[&["--max-memory", "3m"]], |options| options.limits.max_memory = MemoryLimit::of(3 << 20)),
        (&[&["--max-memory", "3G"]], |options| options.limits.max_memory = MemoryLimit::of(3 << 30)),
        (&[&["--idle-timeout", "60"]], |options| options.limits.idle_timeout = Some(Duration::from_secs(60))),
        (&[&["--max-cooldown-memory", "2k"]], |options| {
            options.limits.max_cooldown_memory = MemoryLimit::of(2048)
        }),
        (&[&["--max-cooldown-memory", "0"]], |options| {
            options.limits.max_cooldown_memory = MemoryLimit::Unlimited
        }),
        (&[&["--max-cooldown", "60"]], |options| options.limits.max_cooldown_s = Some(60)),
        (&[&["--max-cooldown", "0"]], |options| options.limits.max_cooldown_s = None),
        (&[&["--max-watched-tubes", "9"]], |options| options.limits.max_watched_tubes = Some(9)),
        (&[&["--max-timeouts", "3"]], |options| options.limits.max_timeouts = Some(3)),
        (&[&["--max-releases", "4"]], |options| options.limits.max_releases = Some(4)),
        (&[&["--socket-mode", "660"], &["--socket-mode", "0660"]], |options| {
            options.listen.socket_mode = Some(0o660);
        }),
        (&[&["--socket-owner", "jo"]], |options| {
            options.listen.socket_owner = Some(SocketOwner { user: "jo".into(), group: None });
        }),
        (&[&["--socket-owner", "jo:www"]], |options| {
            options.listen.socket_owner = Some(SocketOwner { user: "jo".into(), group: Some("www".into()) });
        }),
        (&[&["--metrics-tubes", "0"]], |options| metrics(options).max_tubes = 0),
        (&[&["--admin-token-file", "token"]], |options| {
            admin(options).token_file = Some(PathBuf::from("token"));
        }),
        (&[&["--admin-read-only"]], |options| admin(options).is_read_only = true),
        (&[&["--log-format", "json"]], |options| options.log.format = LogFormat::Json),
        (&[&["--log-format", "json", "--log-format", "text"]], |_| {}),
        (&[&["--spin", "50"]], |options| options.spin = Duration::from_micros(50)),
    ]);
}

/// The options of `line`, after the flags that other flags need: a binlog, a unix socket, metrics.
fn everything_that_flags_need(line: &[&str]) -> Options {
    serve(
        &[
            &[
                "-b",
                "binlog",
                "--listen",
                "unix:socket",
                "--metrics",
                "unix:metrics",
                "--admin",
                "unix:admin",
            ],
            line,
        ]
        .concat(),
    )
}

#[test]
fn a_limit_of_zero_is_none() {
    for flag in ["--max-connections", "--idle-timeout", "--max-timeouts", "--max-releases"] {
        assert_eq!(serve(&[flag, "9", flag, "0"]), Options::default(), "{flag}");
    }
}

#[test]
fn addresses_come_from_l_and_p_and_besides_from_listen() {
    let default = || Some(tcp("0.0.0.0", "11300"));
    let unix = |path: &str| ListenAddress::Unix(path.into());
    let every = |port: &str| ListenAddress::Tcp { host: None, port: port.into(), is_tls: false };
    let table: &[(&[&str], Option<ListenAddress>, Vec<ListenAddress>)] = &[
        (&["-p11301"], Some(tcp("0.0.0.0", "11301")), vec![]),
        (&["--port", "beanstalk"], Some(tcp("0.0.0.0", "beanstalk")), vec![]),
        (&["-p", "1", "-p", "2"], Some(tcp("0.0.0.0", "2")), vec![]),
        (&["-l", "localhost"], Some(tcp("localhost", "11300")), vec![]),
        (&["-l", "::1", "-p", "7"], Some(tcp("::1", "7")), vec![]),
        (&["-l", "a", "-l", "b"], Some(tcp("b", "11300")), vec![]),
        (&["-lunix:/run/b", "-p", "7"], Some(unix("/run/b")), vec![]),
        (&["-l", ""], Some(tcp("", "11300")), vec![]),
        (&["-l", "::"], Some(tcp("::", "11300")), vec![]),
        (&["--listen", "a"], None, vec![tcp("a", "11300")]),
        (&["--listen", "a:1", "--listen=[::1]:2"], None, vec![tcp("a", "1"), tcp("::1", "2")]),
        (&["--listen", "[::1]", "-p", "3"], None, vec![tcp("::1", "3")]),
        (&["-p", "3", "--listen", "a", "--listen", "b:4"], None, vec![tcp("a", "3"), tcp("b", "4")]),
        (&["--listen", ":5"], None, vec![every("5")]),
        (&["-l", "0.0.0.0", "--listen", "unix:s"], default(), vec![unix("s")]),
    ];
    for (line, listen, further_listen) in table {
        let options = serve(line);
        assert_eq!(&options.listen.own, listen, "{line:?}");
        assert_eq!(&options.listen.further, further_listen, "{line:?}");
    }
    for (address, expected) in
        [("127.0.0.1:9", tcp("127.0.0.1", "9")), (":9", every("9")), ("unix:m", unix("m"))]
    {
        assert_eq!(serve(&["--metrics", address]).metrics.unwrap().address, expected);
        assert_eq!(serve(&["--admin", address]).admin.unwrap().address, expected);
    }
}

/// As in C, the argument is the text after the letter, or the next word if there is no such text.
#[test]
fn an_argument_is_the_rest_of_the_word_or_the_next_word_whatever_it_looks_like() {
    let table: &[(&[&str], &str)] = &[
        (&["-p80"], "80"),
        (&["-p", "80"], "80"),
        (&["-Vp80"], "80"),
        (&["-Vp", "80"], "80"),
        (&["-p=80"], "=80"),
        (&["-p-v"], "-v"),
        (&["-p", "-v"], "-v"),
        (&["-p", "--"], "--"),
        (&["-p", "--port"], "--port"),
        (&["-p--port=80"], "--port=80"),
        (&["-p", "a=b"], "a=b"),
        (&["-p", "\u{e9}"], "\u{e9}"),
        (&["--port", "80"], "80"),
        (&["--port=80"], "80"),
        (&["--port==80"], "=80"),
        (&["--port=a=b"], "a=b"),
        (&["--port", "-v"], "-v"),
        (&["--port", "--"], "--"),
        (&["-p80", "--"], "80"),
    ];
    for (line, port) in table {
        assert_eq!(serve(line).listen.own, Some(tcp("0.0.0.0", port)), "{line:?}");
    }
    assert_eq!(serve(&["--port="]).listen.own, Some(tcp("0.0.0.0", "")));
}

#[test]
fn inherited_sockets_override_l_and_p_but_not_listen() {
    let options = serve(&["-l", "10.0.0.1", "-p7", "--listen", "a", "-p", "8"]);
    assert_eq!(options.listen.overridden_if_inherited, ["-l 10.0.0.1", "-p 7", "-p 8"]);
}

#[test]
fn addresses_read_as_they_were_given() {
    for text in ["*:1", "a:1", "[::1]:1", "unix:/run/b"] {
        let given = text.replace('*', "");
        assert_eq!(serve(&["--listen", &given]).listen.further[0].to_string(), text);
    }
}

#[test]
fn sizes_are_read_as_scanf_reads_them() {
    let table: &[(&str, Option<u64>)] = &[
        ("0", Some(0)),
        ("65535", Some(65535)),
        ("007", Some(7)),
        ("  7", Some(7)),
        ("\t\n\x0b\x0c\r 7", Some(7)),
        ("+7", Some(7)),
        ("-1", Some(u64::MAX)),
        ("-7", Some(u64::MAX - 6)),
        ("-0", Some(0)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", Some(u64::MAX)),
        ("-18446744073709551616", Some(u64::MAX)),
        ("", None),
        (" ", None),
        ("-", None),
        ("+-7", None),
        ("- 7", None),
        ("x", None),
        ("7x", None),
        ("7 ", None),
        ("0x7", None),
        ("7.0", None),
    ];
    for (argument, size) in table {
        assert_eq!(crate::number::as_sscanf(argument.as_bytes()), *size, "{argument:?}");
    }
}

#[test]
fn job_sizes_are_cut_to_cs_bound_with_a_warning() {
    for (argument, bytes, warned) in [
        ("0", 0, false),
        ("1073741824", 1 << 30, false),
        ("1073741825", 1 << 30, true),
        ("-1", 1 << 30, true),
        ("99999999999999999999999", 1 << 30, true),
    ] {
        let options = serve(&["-z", argument]);
        assert_eq!(options.limits.max_job_bytes, bytes, "{argument}");
        let warning = format!("-z {argument}: maximum job size was set to 1073741824");
        assert_eq!(options.warnings, if warned { vec![warning] } else { vec![] }, "{argument}");
    }
}

#[test]
fn sizes_take_suffixes_where_c_refuses_the_argument() {
    for (argument, bytes) in [("12k", 12 << 10), ("10M", 10 << 20), ("1g", 1 << 30)] {
        assert_eq!(serve(&["-z", argument]).limits.max_job_bytes, bytes, "{argument}");
        assert_eq!(serve(&["-b", "d", "-s", argument]).binlog_file_bytes, bytes, "{argument}");
        assert_eq!(
            serve(&["--max-memory", argument]).limits.max_memory,
            MemoryLimit::of(bytes),
            "{argument}"
        );
    }
}

#[test]
fn binlog_files_are_as_long_as_asked_up_to_what_c_can_count() {
    let largest = 2_147_479_552;
    for (argument, bytes, warned) in [
        ("0", 0, false),
        ("1000", 1000, false),
        ("4096", 4096, false),
        ("4097", 4097, false),
        ("2147479552", largest, false),
        ("2147479553", largest, true),
        ("-1", largest, true),
    ] {
        let options = serve(&["-b", "d", "-s", argument]);
        assert_eq!(options.binlog_file_bytes, bytes, "{argument}");
        assert_eq!(options.warnings.len(), usize::from(warned), "{argument}");
    }
}

#[test]
fn a_negative_sync_interval_becomes_zero_with_a_warning() {
    for (ms, interval, warned) in [("-1", 0, true), ("86400000", 86400, false)] {
        let options = serve(&["-b", "d", "-f", ms]);
        assert_eq!(options.binlog.unwrap().fsync, Fsync::Within(Duration::from_secs(interval)), "{ms}");
        assert_eq!(options.warnings.len(), usize::from(warned), "{ms}");
    }
}

#[test]
fn flags_without_effect_that_c_accepts_give_a_warning() {
    for (line, flag) in [
        (["-f", "10"], "-f"),
        (["-f0", "-F"], "-f"),
        (["-s", "4096"], "-s"),
        (["--fsync-ms", "1"], "--fsync-ms"),
    ] {
        assert_eq!(serve(&line).warnings, [format!("{flag} does nothing without -b DIR")]);
        assert_eq!(serve(&[line[0], line[1], "-b", "d"]).warnings, [""; 0], "{line:?}");
    }
    assert_eq!(serve(&["-F"]).warnings, [""; 0], "nothing is synced without a binlog");
}

#[test]
fn flags_without_effect_that_c_does_not_know_are_refused() {
    let table: &[(&[&str], &str, &[&str])] = &[
        (&["-D"], "-b DIR", &["-b", "d"]),
        (&["--recover"], "-b DIR", &["-b", "d"]),
        (&["--wait-for-lock"], "-b DIR", &["-b", "d"]),
        (&["--socket-mode", "660"], "an address unix:PATH", &["-l", "unix:s"]),
        (&["--socket-mode", "660"], "an address unix:PATH", &["--listen", "unix:s"]),
        (&["--socket-owner", "jo"], "an address unix:PATH", &["--metrics", "unix:s"]),
        (&["--metrics-tubes", "0"], "--metrics ADDR", &["--metrics", ":9"]),
        (&["--admin-read-only"], "--admin ADDR", &["--admin", ":9"]),
        (&["--admin-token-file", "f"], "--admin ADDR", &["--admin", ":9"]),
    ];
    for (line, other, with) in table {
        assert_eq!(refused(line), format!("{} does nothing without {other}", line[0]));
        serve(&[*line, with].concat());
        serve(&[with, *line].concat());
    }
}

#[test]
fn invalid_ports_that_c_accepts_give_a_warning() {
    for (port, warned) in
        [("65535", false), ("0", false), ("http", false), ("65536", true), ("99999", true), ("", true)]
    {
        let options = serve(&["-p", port]);
        assert_eq!(options.warnings.len(), usize::from(warned), "{port}");
        assert_eq!(options.listen.own, Some(tcp("0.0.0.0", port)));
    }
}

#[test]
fn flags_that_c_removed_give_a_warning_and_change_nothing() {
    let options = serve(&["-cVn"]);
    assert_eq!(options.log.verbosity, 1);
    assert_eq!(
        options.warnings,
        [
            "-c flag was removed. binlog is always compacted.",
            "-n flag was removed. binlog is always compacted.",
        ]
    );
}

#[test]
fn the_first_of_version_help_and_errors_counts() {
    let table: &[(&[&str], Action)] = &[
        (&["-v"], Action::ShowVersion),
        (&["--version"], Action::ShowVersion),
        (&["-Vv", "-q"], Action::ShowVersion),
        (&["-v", "-h"], Action::ShowVersion),
        (&["-vq"], Action::ShowVersion),
        (&["--check-files"], Action::CheckFiles(Box::default())),
        (&["--check-handover", "7"], Action::CheckHandOver(7, Box::default())),
        (&["-h"], Action::ShowHelp),
        (&["--help", "nonsense"], Action::ShowHelp),
        (&["-p1", "-hv"], Action::ShowHelp),
        (&["-vh"], Action::ShowVersion),
        (&["-vp"], Action::ShowVersion),
        (&["-Vhx", "-q"], Action::ShowHelp),
        (&["-v", "\u{e9}"], Action::ShowVersion),
        (&["-v", "--port"], Action::ShowVersion),
        (&["--check", "d"], Action::Check(BinlogPlace::Directory("d".into()))),
        (&["--dump=d", "-V"], Action::Dump(BinlogPlace::Directory("d".into()))),
        (&["--check", "d", "-v"], Action::ShowVersion),
    ];
    for (line, action) in table {
        assert_eq!(&Options::parse(*line).unwrap(), action, "{line:?}");
    }
    assert_eq!(refused(&["-q", "-v"]), "unknown flag: -q");
}

#[test]
fn errors_that_c_also_reports_have_the_words_of_c() {
    let table: &[(&[&str], &str)] = &[
        (&["-q"], "unknown flag: -q"),
        (&["-V", "-q"], "unknown flag: -q"),
        (&["--nonsense"], "unknown flag: --nonsense"),
        (&["--nonsense=1"], "unknown flag: --nonsense"),
        (&["--=1"], "unknown flag: --"),
        (&["--p", "80"], "unknown flag: --p"),
        (&["--p=80"], "unknown flag: --p"),
        (&["--v"], "unknown flag: --v"),
        (&["--b=d"], "unknown flag: --b"),
        (&["-bd", "--\u{e9}"], "unknown flag: --\u{e9}"),
        (&["-V\u{e9}v"], "unknown flag: -\u{e9}"),
        (&["-V=3"], "unknown flag: -="),
        (&["-V-v"], "unknown flag: --"),
        (&["-V-"], "unknown flag: --"),
        (&["-V-V-v"], "unknown flag: --"),
        (&["--recover=1"], "flag takes no argument: --recover"),
        (&["--recover="], "flag takes no argument: --recover"),
        (&["--", "-v"], "unknown argument: -v"),
        (&["--", "--"], "unknown argument: --"),
        (&[""], "unknown argument: "),
        (&["\u{e9}"], "unknown argument: \u{e9}"),
        (&["x"], "unknown argument: x"),
        (&["-"], "unknown argument: -"),
        (&["-V", "x", "-v"], "unknown argument: x"),
        (&["-p"], "flag requires an argument: -p"),
        (&["-VFb"], "flag requires an argument: -b"),
        (&["--port"], "flag requires an argument: --port"),
        (&["--p"], "unknown flag: --p"),
        (&["-bd", "-s"], "flag requires an argument: -s"),
    ];
    for (line, message) in table {
        assert_eq!(&refused(line), message, "{line:?}");
    }
}

#[test]
fn a_refused_argument_is_named_with_its_flag_and_what_was_expected() {
    let table: &[(&[&str], &str, &str, &str)] = &[
        (&["-z", "x"], "-z", "x", "bytes"),
        (&["--max-job-size", "-5k"], "--max-job-size", "-5k", "bytes"),
        (&["-s7x"], "-s", "7x", "bytes"),
        (&["-f", ""], "-f", "", "milliseconds"),
        (&["-f", "10s"], "-f", "10s", "milliseconds"),
        (&["--max-connections", "-1"], "--max-connections", "-1", "number"),
        (&["--max-memory", "k"], "--max-memory", "k", "bytes"),
        (&["--max-memory", ""], "--max-memory", "", "bytes"),
        (&["--max-memory", "-1"], "--max-memory", "-1", "bytes"),
        (&["--max-memory", "17179869184g"], "--max-memory", "17179869184g", "bytes"),
        (&["--idle-timeout", "1s"], "--idle-timeout", "1s", "number"),
        (&["--socket-mode", "8"], "--socket-mode", "8", "octal"),
        (&["--socket-mode", "1000"], "--socket-mode", "1000", "octal"),
        (&["--socket-owner", ":www"], "--socket-owner", ":www", "USER"),
        (&["--socket-owner", "jo:"], "--socket-owner", "jo:", "USER"),
        (&["--metrics", "localhost"], "--metrics", "localhost", "port"),
        (&["--metrics", "localhost:"], "--metrics", "localhost:", "address"),
        (&["--metrics", ":65536"], "--metrics", ":65536", "address"),
        (&["-l", "unix:"], "-l", "unix:", "path"),
        (&["--metrics", "unix:"], "--metrics", "unix:", "path"),
        (&["--admin", "localhost"], "--admin", "localhost", "port"),
        (&["--admin-token-file", ""], "--admin-token-file", "", "file"),
        (&["--listen", "[::1"], "--listen", "[::1", "address"),
        (&["--listen", "[::1]7"], "--listen", "[::1]7", "address"),
        (&["--listen", "a:99999"], "--listen", "a:99999", "address"),
        (&["--log-format", "xml"], "--log-format", "xml", "json"),
        (&["-b", ""], "-b", "", "directory"),
        (&["--check", ""], "--check", "", "directory"),
    ];
    for (line, named, value, hint) in table {
        match Options::parse(*line) {
            Err(UsageError::InvalidArgument { flag, argument, expected }) => {
                assert_eq!((flag.as_str(), argument.as_str()), (*named, *value));
                assert!(expected.contains(hint), "{line:?}: {expected}");
            }
            other => panic!("{line:?}: {other:?}"),
        }
    }
}

#[test]
fn paths_are_bytes_and_names_are_text() {
    let odd = OsStr::from_bytes(b"/\xff");
    let path = PathBuf::from(odd);
    let Ok(Action::Serve(options)) = Options::parse(["-b".as_ref(), odd]) else { panic!() };
    assert_eq!(options.binlog.unwrap().place, BinlogPlace::Directory(path.clone()));
    let socket = OsStr::from_bytes(b"-lunix:/\xff");
    let Ok(Action::Serve(options)) = Options::parse([socket]) else { panic!() };
    assert_eq!(options.listen.own, Some(ListenAddress::Unix(path.clone())));
    let long = OsStr::from_bytes(b"--binlog-dir=/\xff");
    let Ok(Action::Serve(options)) = Options::parse([long]) else { panic!() };
    assert_eq!(options.binlog.unwrap().place, BinlogPlace::Directory(path));
    // Each byte that an argument can have is kept.
    let every: Vec<u8> = (1..=255).rev().collect();
    let Ok(Action::Check(BinlogPlace::Directory(path))) =
        Options::parse(["--check".as_ref(), OsStr::from_bytes(&every)])
    else {
        panic!()
    };
    assert_eq!(path.as_os_str().as_bytes(), every);
    for flag in ["-u", "-p", "-l", "--max-memory"] {
        let error = Options::parse([flag.as_ref(), odd]).unwrap_err();
        assert!(matches!(error, UsageError::InvalidArgument { .. }), "{flag}: {error}");
    }
    assert!(matches!(Options::parse([odd]), Err(UsageError::UnknownArgument(_))));
    for flag in [b"-\xff".as_slice(), b"-V\xff", b"--\xff", b"--\xff=1"] {
        let error = Options::parse([OsStr::from_bytes(flag)]).unwrap_err();
        let shown = if flag.starts_with(b"--") { "--\u{fffd}" } else { "-\u{fffd}" };
        assert_eq!(error, UsageError::UnknownFlag(shown.to_owned()));
    }
}
