# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_beanstalkctl_global_optspecs
    string join \n s/server= json timeout= h/help V/version
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

complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -s V -l version -d 'Print version'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "stats" -d 'Show the counters of the server, or of a tube'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "tubes" -d 'List tubes with their counts'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "jobs" -d 'List the jobs of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "job" -d 'Show what the server tells of jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "peek" -d 'Print the body of a job'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "put" -d 'Put jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "reserve" -d 'Take a job, print its body, and give it back'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "delete" -d 'Delete jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "kick" -d 'Make buried and delayed jobs ready'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "bury" -d 'Bury ready and delayed jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "release" -d 'Make jobs ready, or delay them, by reserving them for a moment'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "move" -d 'Move jobs to another tube'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "reprioritize" -d 'Change the priority of jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "pause" -d 'Let nobody reserve from tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "resume" -d 'End the pause of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "flush" -d 'Delete every job of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "drain" -d 'Let the server take no new jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "undrain" -d 'Let the server take new jobs again'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "watch" -d 'Tell what happens in tubes, as it happens'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "top" -d 'Show tubes and jobs live, and act on them'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "work" -d 'Run a command for each job'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "export" -d 'Write jobs as lines of JSON'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "import" -d 'Put the jobs of an export'
complete -c beanstalkctl -n "__fish_beanstalkctl_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand stats" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -l sort -d 'Order by this; counts with the largest first' -r -f -a "name\t'The name'
ready\t'Ready jobs'
reserved\t'Reserved jobs'
delayed\t'Delayed jobs'
buried\t'Buried jobs'
jobs\t'Jobs in any state'
waiting\t'Workers that wait'
total\t'Jobs put since the tube came to be'
age\t'How long the oldest ready job is there, where the server tells'"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -s r -l reverse -d 'The other way round'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand tubes" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l state -d 'Jobs in this state: ready, reserved, delayed or buried' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l older-than -d 'Jobs that were put at least so long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l body-matches -d 'Jobs whose body has this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -s n -l limit -d 'At most so many' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand jobs" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand job" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l next -d 'The next job of this state instead' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l tube -d 'Of this tube' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l pretty -d 'Format a body that is JSON'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand peek" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s f -l file -d 'The body is what this file holds; - for standard input' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s p -l priority -d '0 is the most urgent; below 1024 counts as urgent' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s d -l delay -d 'Ready after so long' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l ttr -d 'How long a worker has for it' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l tag -d 'idp:KEY[:SECONDS], con:KEY[:LIMIT], grp:NAME, aft:NAME or exp:SECONDS; the server must know it' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s l -l lines -d 'A job for each line of standard input'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand put" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l wait -d 'How long to wait for one; 0s: not at all. Without it: until there is one' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l then -d 'What becomes of it then' -r -f -a "release\t'It is ready again'
delete\t'It is done'
bury\t'It is set aside'
hold\t'It stays reserved, and is touched, until Ctrl-C; then it is ready again'"
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reserve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -s t -l tube -d 'Jobs of these tubes; a name or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l state -d 'Jobs in this state: ready, reserved, delayed or buried' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l older-than -d 'Jobs that were put at least so long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l body-matches -d 'Jobs whose body has this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l all -d 'Every job, of the tubes if there are any'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -s y -l yes -d 'Do not ask'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l dry-run -d 'Change nothing, only say what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand delete" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -s t -l tube -d 'Jobs of these tubes; a name or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l state -d 'Jobs in this state: ready, reserved, delayed or buried' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l older-than -d 'Jobs that were put at least so long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l body-matches -d 'Jobs whose body has this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l all -d 'Every job, of the tubes if there are any'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -s y -l yes -d 'Do not ask'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l dry-run -d 'Change nothing, only say what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand kick" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -s t -l tube -d 'Jobs of these tubes; a name or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l state -d 'Jobs in this state: ready, reserved, delayed or buried' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l older-than -d 'Jobs that were put at least so long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l body-matches -d 'Jobs whose body has this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l all -d 'Every job, of the tubes if there are any'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -s y -l yes -d 'Do not ask'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l dry-run -d 'Change nothing, only say what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand bury" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s t -l tube -d 'Jobs of these tubes; a name or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l state -d 'Jobs in this state: ready, reserved, delayed or buried' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l older-than -d 'Jobs that were put at least so long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l body-matches -d 'Jobs whose body has this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s p -l priority -d 'Their new priority; by default they keep theirs' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s d -l delay -d 'Ready after so long' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l all -d 'Every job, of the tubes if there are any'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s y -l yes -d 'Do not ask'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l dry-run -d 'Change nothing, only say what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand release" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -s t -l tube -d 'Jobs of these tubes; a name or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l state -d 'Jobs in this state: ready, reserved, delayed or buried' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l older-than -d 'Jobs that were put at least so long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l body-matches -d 'Jobs whose body has this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l to -d 'The tube that they go to' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l all -d 'Every job, of the tubes if there are any'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -s y -l yes -d 'Do not ask'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l dry-run -d 'Change nothing, only say what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand move" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -s t -l tube -d 'Jobs of these tubes; a name or a pattern such as \'mail-*\'' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l state -d 'Jobs in this state: ready, reserved, delayed or buried' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l older-than -d 'Jobs that were put at least so long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l body-matches -d 'Jobs whose body has this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -s p -l priority -d 'Their new priority; 0 is the most urgent' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l all -d 'Every job, of the tubes if there are any'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -s y -l yes -d 'Do not ask'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l dry-run -d 'Change nothing, only say what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand reprioritize" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l for -d 'For how long' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -s y -l yes -d 'Do not ask'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l dry-run -d 'Change nothing, only say what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand pause" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -s y -l yes -d 'Do not ask'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -l dry-run -d 'Change nothing, only say what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand resume" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -s y -l yes -d 'Do not ask'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l dry-run -d 'Change nothing, only say what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l buried -d 'The buried jobs alone'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand flush" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand drain" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand undrain" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -l interval -d 'How often to look' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand watch" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -l interval -d 'How often to look' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand top" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -s j -l jobs -d 'So many commands at once' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l attempts -d 'Bury a job that has failed so many times' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l delay -d 'Delay after the first failure; it doubles with each' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l max-delay -d 'The longest delay' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l until-empty -d 'End when there is no job, instead of waiting for one'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand work" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l state -d 'Jobs in this state: ready, reserved, delayed or buried' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l older-than -d 'Jobs that were put at least so long ago' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l body-matches -d 'Jobs whose body has this regular expression' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -s o -l output -d 'The file; - for standard output. It gets its name when it is complete' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l drain -d 'Delete the jobs once they are safe in the file'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -s y -l yes -d 'Do not ask'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l dry-run -d 'Change nothing, only say what would change'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand export" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l tube -d 'Put all jobs into this tube' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l journal -d 'Where it is written down what was put; by default FILE.journal' -r -F
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -s s -l server -d 'The server: host:port, or unix:PATH. stats, tubes, watch, top, drain and undrain take several, separated by commas' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l timeout -d 'How long the server may take to answer' -r
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l drop-tags -d 'Put jobs with tags that the server does not know without them'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l dry-run -d 'Only check the file, and say what would be put'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -l json -d 'Print JSON, a value on each line'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand import" -s h -l help -d 'Print help'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "stats" -d 'Show the counters of the server, or of a tube'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "tubes" -d 'List tubes with their counts'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "jobs" -d 'List the jobs of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "job" -d 'Show what the server tells of jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "peek" -d 'Print the body of a job'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "put" -d 'Put jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "reserve" -d 'Take a job, print its body, and give it back'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "delete" -d 'Delete jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "kick" -d 'Make buried and delayed jobs ready'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "bury" -d 'Bury ready and delayed jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "release" -d 'Make jobs ready, or delay them, by reserving them for a moment'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "move" -d 'Move jobs to another tube'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "reprioritize" -d 'Change the priority of jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "pause" -d 'Let nobody reserve from tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "resume" -d 'End the pause of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "flush" -d 'Delete every job of tubes'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "drain" -d 'Let the server take no new jobs'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "undrain" -d 'Let the server take new jobs again'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "watch" -d 'Tell what happens in tubes, as it happens'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "top" -d 'Show tubes and jobs live, and act on them'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "work" -d 'Run a command for each job'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "export" -d 'Write jobs as lines of JSON'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "import" -d 'Put the jobs of an export'
complete -c beanstalkctl -n "__fish_beanstalkctl_using_subcommand help; and not __fish_seen_subcommand_from stats tubes jobs job peek put reserve delete kick bury release move reprioritize pause resume flush drain undrain watch top work export import help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
