# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_beanstalkctl_global_optspecs
    string join \n s/server= json timeout= tls ca= cert= key= token-file= h/help V/version
end

function __fish_beanstalkctl_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_beanstalkctl_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_beanstalkctl_using_subcommand
    set -l cmd (__fish_beanstalkctl_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -s V -l version -d 'Print version'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "stats" -d 'Show the counters of the server, or of a tube'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "tubes" -d 'List tubes with their numbers of jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "jobs" -d 'List the jobs of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "job" -d 'Show the counters of jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "peek" -d 'Print the body of a job'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "put" -d 'Put jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "reserve" -d 'Reserve a job, print its body, and release it'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "delete" -d 'Delete jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "kick" -d 'Make buried and delayed jobs ready'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "bury" -d 'Bury ready and delayed jobs, by reserving them first'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "release" -d 'Make jobs ready, or delay them, by reserving them first'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "move" -d 'Move jobs to another tube'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "reprioritize" -d 'Change the priority of jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "pause" -d 'Pause tubes: no client can reserve their jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "resume" -d 'End the pause of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "flush" -d 'Delete every job of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "drain" -d 'Start drain mode: the server accepts no new jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "undrain" -d 'End drain mode: the server accepts new jobs again'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "watch" -d 'Print what happens in tubes, until Ctrl-C'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "top" -d 'Show tubes and jobs in a live view, and change them'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "work" -d 'Run a command for each job'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "export" -d 'Write jobs as lines of JSON'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "import" -d 'Put the jobs of an export'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -l sort -d 'Sort by this; numbers with the largest first' -r -f -a "name\t'Name'
ready\t'Ready jobs'
reserved\t'Reserved jobs'
delayed\t'Delayed jobs'
buried\t'Buried jobs'
jobs\t'Jobs in any state'
waiting\t'Waiting workers'
total\t'Jobs put since the tube was created'
age\t'Age of the oldest ready job, if the server reports it'"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -s r -l reverse -d 'Reverse the order'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l state -d 'Only jobs in this state' -r -f -a "ready\t''
reserved\t''
delayed\t''
buried\t''"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l older-than -d 'Only jobs that were put at least this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l younger-than -d 'Only jobs that were put less than this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l tag -d 'Only jobs with this tag: idp, con, grp, aft or exp, alone or with a key or a group such as grp:rows' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l body-matches -d 'Only jobs whose body matches this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -s n -l limit -d 'Print at most this many jobs' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l next -d 'Instead of an id: the next job in this state' -r -f -a "ready\t''
reserved\t''
delayed\t''
buried\t''"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l tube -d 'With --next: the tube' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l pretty -d 'Format the body if it is JSON'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s f -l file -d 'Read the body from this file; - is standard input' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s p -l priority -d 'Priority; 0 is the most urgent, and jobs below 1024 count as urgent' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s d -l delay -d 'Seconds until the job becomes ready' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l ttr -d 'Time to run: how long a worker may keep the job reserved' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l tag -d 'idp:KEY[:SECONDS], con:KEY[:LIMIT], grp:NAME, aft:NAME or exp:SECONDS; the server must support it' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s l -l lines -d 'Put a job for each line of standard input'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l wait -d 'Longest time to wait for a job; 0s does not wait. Without it, wait until there is a job' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l then -d 'What to do with the job after its body is printed' -r -f -a "release\t'Make it ready again'
delete\t'Delete it'
bury\t'Bury it'
hold\t'Keep it reserved, with touches, until Ctrl-C; then make it ready again'"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -s t -l tube -d 'Only jobs of this tube: a name, or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l state -d 'Only jobs in this state' -r -f -a "ready\t''
reserved\t''
delayed\t''
buried\t''"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l older-than -d 'Only jobs that were put at least this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l younger-than -d 'Only jobs that were put less than this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l tag -d 'Only jobs with this tag: idp, con, grp, aft or exp, alone or with a key or a group such as grp:rows' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l body-matches -d 'Only jobs whose body matches this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -s n -l limit -d 'At most this many of them: those that would be served first' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l all -d 'Every job; with --tube, every job of these tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -s y -l yes -d 'Do not ask for confirmation'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l dry-run -d 'Change nothing; only print what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -s t -l tube -d 'Only jobs of this tube: a name, or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l state -d 'Only jobs in this state' -r -f -a "ready\t''
reserved\t''
delayed\t''
buried\t''"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l older-than -d 'Only jobs that were put at least this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l younger-than -d 'Only jobs that were put less than this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l tag -d 'Only jobs with this tag: idp, con, grp, aft or exp, alone or with a key or a group such as grp:rows' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l body-matches -d 'Only jobs whose body matches this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -s n -l limit -d 'At most this many of them: those that would be served first' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l all -d 'Every job; with --tube, every job of these tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -s y -l yes -d 'Do not ask for confirmation'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l dry-run -d 'Change nothing; only print what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -s t -l tube -d 'Only jobs of this tube: a name, or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l state -d 'Only jobs in this state' -r -f -a "ready\t''
reserved\t''
delayed\t''
buried\t''"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l older-than -d 'Only jobs that were put at least this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l younger-than -d 'Only jobs that were put less than this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l tag -d 'Only jobs with this tag: idp, con, grp, aft or exp, alone or with a key or a group such as grp:rows' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l body-matches -d 'Only jobs whose body matches this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -s n -l limit -d 'At most this many of them: those that would be served first' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l all -d 'Every job; with --tube, every job of these tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -s y -l yes -d 'Do not ask for confirmation'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l dry-run -d 'Change nothing; only print what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s t -l tube -d 'Only jobs of this tube: a name, or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l state -d 'Only jobs in this state' -r -f -a "ready\t''
reserved\t''
delayed\t''
buried\t''"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l older-than -d 'Only jobs that were put at least this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l younger-than -d 'Only jobs that were put less than this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l tag -d 'Only jobs with this tag: idp, con, grp, aft or exp, alone or with a key or a group such as grp:rows' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l body-matches -d 'Only jobs whose body matches this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s n -l limit -d 'At most this many of them: those that would be served first' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s p -l priority -d 'New priority; without it, the jobs keep theirs' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s d -l delay -d 'Seconds until the job becomes ready' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l all -d 'Every job; with --tube, every job of these tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s y -l yes -d 'Do not ask for confirmation'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l dry-run -d 'Change nothing; only print what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -s t -l tube -d 'Only jobs of this tube: a name, or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l state -d 'Only jobs in this state' -r -f -a "ready\t''
reserved\t''
delayed\t''
buried\t''"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l older-than -d 'Only jobs that were put at least this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l younger-than -d 'Only jobs that were put less than this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l tag -d 'Only jobs with this tag: idp, con, grp, aft or exp, alone or with a key or a group such as grp:rows' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l body-matches -d 'Only jobs whose body matches this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -s n -l limit -d 'At most this many of them: those that would be served first' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l to -d 'The new tube' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l all -d 'Every job; with --tube, every job of these tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -s y -l yes -d 'Do not ask for confirmation'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l dry-run -d 'Change nothing; only print what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -s t -l tube -d 'Only jobs of this tube: a name, or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l state -d 'Only jobs in this state' -r -f -a "ready\t''
reserved\t''
delayed\t''
buried\t''"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l older-than -d 'Only jobs that were put at least this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l younger-than -d 'Only jobs that were put less than this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l tag -d 'Only jobs with this tag: idp, con, grp, aft or exp, alone or with a key or a group such as grp:rows' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l body-matches -d 'Only jobs whose body matches this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -s n -l limit -d 'At most this many of them: those that would be served first' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -s p -l priority -d 'New priority; 0 is the most urgent' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l all -d 'Every job; with --tube, every job of these tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -s y -l yes -d 'Do not ask for confirmation'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l dry-run -d 'Change nothing; only print what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l for -d 'Length of the pause' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -s y -l yes -d 'Do not ask for confirmation'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l dry-run -d 'Change nothing; only print what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -s y -l yes -d 'Do not ask for confirmation'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -l dry-run -d 'Change nothing; only print what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -s y -l yes -d 'Do not ask for confirmation'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l dry-run -d 'Change nothing; only print what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l buried -d 'Delete only the buried jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -l interval -d 'How often to look' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -l interval -d 'How often to look' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -s j -l jobs -d 'Number of commands to run in parallel' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l attempts -d 'Bury a job when it has failed this many times' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l delay -d 'Delay after the first failure; it doubles with each further failure' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l max-delay -d 'The longest delay' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l until-empty -d 'Exit when there is no ready job, instead of waiting for one'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l state -d 'Only jobs in this state' -r -f -a "ready\t''
reserved\t''
delayed\t''
buried\t''"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l older-than -d 'Only jobs that were put at least this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l younger-than -d 'Only jobs that were put less than this long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l tag -d 'Only jobs with this tag: idp, con, grp, aft or exp, alone or with a key or a group such as grp:rows' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l body-matches -d 'Only jobs whose body matches this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -s o -l output -d 'The file; - is standard output. It gets its name when it is complete; a device or a FIFO is written to' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l force -d 'Replace a file that --drain wrote, although it may have the only copy of its jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l drain -d 'Delete the jobs when they are in the file and synced'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -s y -l yes -d 'Do not ask for confirmation'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l dry-run -d 'Change nothing; only print what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l tube -d 'Put all jobs into this tube' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l journal -d 'File that records which jobs were put; by default FILE.journal, for standard input a temporary file' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -s s -l server -d 'Address of the server: host:port or unix:PATH. stats, tubes, watch, top, drain and undrain accept several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l timeout -d 'Longest time to wait for a reply of the server' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l ca -d 'Trust servers with a certificate of these authorities (PEM); without it, of those of the system' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l cert -d 'Show this certificate to the server (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l key -d 'Key of the certificate (PEM)' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l token-file -d 'Log in with the token in this file; without it, with the token in the variable BEANSTALKD_TOKEN' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l drop-tags -d 'Leave out tags that the server does not support'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l dry-run -d 'Only check the file, and print what would be put'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l json -d 'Print JSON, one value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l tls -d 'Connect with TLS'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "stats" -d 'Show the counters of the server, or of a tube'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "tubes" -d 'List tubes with their numbers of jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "jobs" -d 'List the jobs of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "job" -d 'Show the counters of jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "peek" -d 'Print the body of a job'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "put" -d 'Put jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "reserve" -d 'Reserve a job, print its body, and release it'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "delete" -d 'Delete jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "kick" -d 'Make buried and delayed jobs ready'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "bury" -d 'Bury ready and delayed jobs, by reserving them first'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "release" -d 'Make jobs ready, or delay them, by reserving them first'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "move" -d 'Move jobs to another tube'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "reprioritize" -d 'Change the priority of jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "pause" -d 'Pause tubes: no client can reserve their jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "resume" -d 'End the pause of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "flush" -d 'Delete every job of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "drain" -d 'Start drain mode: the server accepts no new jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "undrain" -d 'End drain mode: the server accepts new jobs again'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "watch" -d 'Print what happens in tubes, until Ctrl-C'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "top" -d 'Show tubes and jobs in a live view, and change them'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "work" -d 'Run a command for each job'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "export" -d 'Write jobs as lines of JSON'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "import" -d 'Put the jobs of an export'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'

# Asks the server that the line names for its tubes.
function __beanstalkctl_tubes
    set -l words (commandline -opc)
    set -l asked --timeout 1s
    for i in (seq 2 (count $words))
        switch $words[$i]
            case -s --server --ca --cert --key --token-file
                set -q words[(math $i + 1)]; and set -a asked $words[$i] $words[(math $i + 1)]
            case --tls '--server=*' '--ca=*' '--cert=*' '--key=*' '--token-file=*'
                set -a asked $words[$i]
        end
    end
    beanstalkctl $asked tubes --json 2>/dev/null </dev/null | string replace -rf '.*"name":"([^"]*)".*' '$1' | sort -u
end
complete -c beanstalkctl -n "__fish_seen_subcommand_from stats tubes jobs put reserve pause resume flush watch work export" -f -a "(__beanstalkctl_tubes)"
complete -c beanstalkctl -n "__fish_seen_subcommand_from delete kick bury release move reprioritize peek" -s t -l tube -x -a "(__beanstalkctl_tubes)"
complete -c beanstalkctl -n "__fish_seen_subcommand_from delete kick bury release move reprioritize peek" -l to -x -a "(__beanstalkctl_tubes)"
