#!/bin/bash
# What the package does in a machine that systemd has booted: upgrade from C's server and back, the order at
# boot, what heals and what does not, the watchdog, the socket, the sandbox, the purge. Run by tests/packaging/boot.sh
# in the machine. Every check says what it saw; those that fail do not stop the others.
set -u
report=/opt/report
failed=$report/failed

check() { # NAME COMMAND...: the command must succeed
    local name=$1
    shift
    if "$@"; then echo "ok      $name"; else
        echo "FAILED  $name: $*" | tee -a $failed
    fi
}
same() { # NAME EXPECTED ACTUAL
    if [ "$2" = "$3" ]; then echo "ok      $1: $3"; else
        echo "FAILED  $1: found $3, expected $2" | tee -a $failed
    fi
}
within() { # SECONDS COMMAND...: waits until the command succeeds
    local end=$(($(date +%s) + $1))
    shift
    until "$@" 2>/dev/null; do
        [ "$(date +%s)" -lt $end ] || return 1
        sleep 0.1
    done
}
not() { ! "$@"; }
show() { systemctl show -P "$1" "${2:-beanstalkd.service}"; }
active() { [ "$(show ActiveState "${1:-beanstalkd.service}")" = active ]; }
say() { printf "$1" | nc -q1 -w5 ${2:-127.0.0.1 11300} | tr -d '\r'; } # LINES [WHERE]
stat_of() { say 'stats\r\n' "${2:-}" | sed -n "s/^$1: //p"; }
jobs_there() { # ready, delayed, buried
    for kind in ready delayed buried; do printf '%s ' "$(stat_of current-jobs-$kind "${1:-}")"; done
}
answers() { [ -n "$(stat_of uptime "${1:-}")" ]; }
setting() { # NAME VALUE, in the administrator's file
    sed -i "/^$1=/d" /etc/default/beanstalkd
    echo "$1=$2" >>/etc/default/beanstalkd
}
install_package() { timeout 100 dpkg -i "/opt/$1.deb" >$report/dpkg 2>&1 </dev/null || { cat $report/dpkg; false; }; }
is_c() { [ "$(stat_of version "${1:-}" | cut -d. -f1)" = '"1' ]; }
ours() { answers "${1:-}" && ! is_c "${1:-}"; }
restarted() { [ "$(show NRestarts)" -ge "$1" ]; }
drop_in() { # NAME LINES: for this boot
    mkdir -p /run/systemd/system/beanstalkd.service.d
    printf "$2" >"/run/systemd/system/beanstalkd.service.d/$1.conf"
    systemctl daemon-reload
}
no_drop_ins() { rm -rf /run/systemd/system/beanstalkd.service.d && systemctl daemon-reload; }
again() { systemctl reset-failed beanstalkd.service beanstalkd.socket 2>/dev/null; systemctl "$@"; }

upgrade_with_data() {
    echo "# from C with a binlog and a setting of the administrator, and back"
    check "C's package installs" install_package c
    install -d -o beanstalkd -g beanstalkd /srv/jobs
    setting BEANSTALKD_EXTRA '"-b /srv/jobs -f0 -u beanstalkd"'
    systemctl restart beanstalkd
    within 10 answers
    for _ in $(seq 50); do printf 'put 0 0 60 5\r\nhello\r\nput 0 90000 60 2\r\nhi\r\n'; done |
        nc -q1 127.0.0.1 11300 >/dev/null
    say 'reserve\r\nbury 1 0\r\nreserve\r\ndelete 3\r\n' >/dev/null
    same "C holds" "48 50 1 " "$(jobs_there)"
    before=$(sha256sum </etc/default/beanstalkd)

    # As doc/operations.md says.
    systemctl stop beanstalkd
    cp -a /srv/jobs /srv/jobs.before
    dpkg-deb -x /opt/ours.deb /opt/new
    check "--check of the new program accepts the binlog of C" /opt/new/usr/bin/beanstalkd --check /srv/jobs
    check "the upgrade without a terminal succeeds, while the network is not online" install_package ours
    check "the package has started the new server" within 10 ours
    same "the jobs after the upgrade" "48 50 1 " "$(jobs_there)"
    same "the settings stay" "$before" "$(sha256sum </etc/default/beanstalkd)"
    check "the package names the drop-in" grep -q /srv/jobs $report/dpkg
    check "C's script for sysvinit is removed" [ ! -e /etc/init.d/beanstalkd ]
    say 'reserve\r\nput 0 0 60 3\r\nnew\r\n' >/dev/null

    check "the downgrade succeeds" install_package c
    check "C serves after the downgrade" within 10 is_c
    check "the downgrade removes the drop-in, which only this unit needs" \
        [ ! -e /etc/systemd/system/beanstalkd.service.d ]
    same "the jobs after the downgrade" "49 50 1 " "$(jobs_there)"
    same "the settings stay" "$before" "$(sha256sum </etc/default/beanstalkd)"
    check "the second upgrade succeeds" install_package ours
    check "the new server serves after the second upgrade" within 10 ours
    same "the jobs after the second upgrade" "49 50 1 " "$(jobs_there)"
}

hidden_paths() {
    echo "# settings that name a home and /tmp"
    install_package c
    install -d /home/queue && install -d -o beanstalkd -g beanstalkd /home/queue/jobs
    setting BEANSTALKD_LISTEN_ADDR unix:/tmp/queue.socket
    setting BEANSTALKD_EXTRA '-b /home/queue/jobs'
    rm -f /tmp/queue.socket
    systemctl restart beanstalkd
    check "C serves at /tmp" within 10 is_c "-U /tmp/queue.socket"
    check "the upgrade succeeds" install_package ours
    check "the new server serves at /tmp" within 10 ours "-U /tmp/queue.socket"
    check "the binlog is in a home" [ -e /home/queue/jobs/lock ]
    setting BEANSTALKD_LISTEN_ADDR 127.0.0.1
    setting BEANSTALKD_EXTRA '"-b /var/lib/beanstalkd"'
    check "an upgrade with settings that need no exception succeeds" install_package ours
    check "the server that was handed over keeps its command line" ours "-U /tmp/queue.socket"
    systemctl restart beanstalkd
    check "the server serves after a restart" within 10 ours
    check "the drop-in with the exceptions is removed" [ ! -e /etc/systemd/system/beanstalkd.service.d ]
}

hand_over() {
    echo "# an upgrade while 1,000 clients work"
    systemctl enable --quiet --now beanstalkd@11301
    within 10 ours "127.0.0.1 11301"
    local process instance clients
    process=$(show MainPID) instance=$(show MainPID beanstalkd@11301.service)
    local before
    before=$(stat_of total-jobs)
    # Each puts a job, reserves one and deletes it, again and again, over one connection.
    clients=()
    for number in $(seq 1000); do
        (
            exec 3<>/dev/tcp/127.0.0.1/11300 || exit 1
            printf 'use of-%s\r\nwatch of-%s\r\nignore default\r\n' $number $number >&3
            for _ in 1 2 3; do read -r -t 60 _ <&3 || exit 1; done
            for _ in $(seq 20); do
                printf 'put 0 0 60 1\r\nx\r\nreserve\r\n' >&3
                read -r -t 60 word id <&3 && [ "$word" = INSERTED ] || exit 1
                read -r -t 60 word got _ <&3 && [ "$word $got" = "RESERVED ${id%?}" ] || exit 1
                read -r -t 60 _ <&3 || exit 1
                printf 'delete %s\r\n' "$got" >&3
                read -r -t 60 word <&3 && [ "${word%?}" = DELETED ] || exit 1
                sleep 0.2
            done
        ) &
        clients+=($!)
    done
    sleep 2
    check "the upgrade succeeds" install_package ours
    local failures=0
    for client in "${clients[@]}"; do wait "$client" || failures=$((failures + 1)); done
    same "clients that noticed" 0 $failures
    same "jobs that were put" $((before + 20000)) "$(stat_of total-jobs)"
    same "the process ids of the service and its instance stay" "$process $instance" \
        "$(show MainPID) $(show MainPID beanstalkd@11301.service)"
    check "both run the new program" not eval 'readlink /proc/{'"$process,$instance"'}/exe | grep -q deleted'
    systemctl stop beanstalkd@11301
}

order_at_boot() { # WHEN
    check "$1: up" within 30 ours
    same "$1: the network is not online yet" "inactive" "$(show ActiveState network-online.target)"
}

directories() {
    echo "# two units and their directories"
    runtime=/run/$(show RuntimeDirectory beanstalkd@11301.service)
    echo "BEANSTALKD_EXTRA=\"--listen unix:$runtime/socket\"" >/etc/default/beanstalkd-11301
    systemctl enable --quiet --now beanstalkd@11301
    check "beanstalkd@11301 serves" ours "-U $runtime/socket"
    systemctl restart beanstalkd
    check "beanstalkd@11301 serves after a restart of beanstalkd" ours "-U $runtime/socket"
    install -o beanstalkd -m 600 /dev/null /var/lib/beanstalkd/precious
    systemctl stop beanstalkd beanstalkd@11301
    systemctl clean --what=state beanstalkd@11301
    check "cleaning beanstalkd@11301 leaves the jobs of beanstalkd" [ -e /var/lib/beanstalkd/precious ]
    rm -f /var/lib/beanstalkd/precious
    systemctl start beanstalkd
}

# From systemd 254 on the pauses between restarts grow: six take two minutes, the next one comes within half a minute.
hold_lock() { # by another server, the process $holder
    setpriv --reuid=beanstalkd --regid=beanstalkd --clear-groups \
        beanstalkd -l 127.0.0.1 -p 11399 -b /var/lib/beanstalkd 2>/dev/null &
    holder=$!
    within 10 answers "127.0.0.1 11399"
}

healing() {
    echo "# failures that pass, and some that do not"
    systemctl stop beanstalkd
    nc -lk 127.0.0.1 11300 >/dev/null &
    holder=$!
    systemctl start beanstalkd 2>/dev/null
    check "the port is in use: systemd starts the server again and again" within 120 restarted 6
    check "with longer and longer pauses: $(show RestartUSec)" [ "$(show RestartUSec)" != 100ms ]
    kill $holder
    check "the port is free: the server starts" within 40 ours

    systemctl stop beanstalkd
    hold_lock
    systemctl start beanstalkd 2>/dev/null
    check "the lock is in use: systemd starts the server again and again" within 120 restarted 6
    kill $holder
    check "the lock is free: the server starts" within 40 ours

    systemctl stop beanstalkd
    cp -a /srv/jobs.before /var/lib/beanstalkd/damaged
    local damaged
    damaged=$(ls /var/lib/beanstalkd/damaged/binlog.* | head -n 1)
    printf '\377\377\377\377' | dd of="$damaged" bs=1 seek=100 conv=notrunc status=none
    setting BEANSTALKD_EXTRA '"-b /var/lib/beanstalkd/damaged"'
    again start beanstalkd 2>/dev/null
    same "a damaged binlog: the unit has failed, without a restart" \
        "failed 65 0" "$(show ActiveState) $(show ExecMainStatus) $(show NRestarts)"
    setting BEANSTALKD_EXTRA '--no-such-flag'
    again start beanstalkd 2>/dev/null
    same "a wrong command line: the unit has failed, without a restart" \
        "failed 5 0" "$(show ActiveState) $(show ExecMainStatus) $(show NRestarts)"
    setting BEANSTALKD_EXTRA '-u nobody'
    again start beanstalkd 2>/dev/null
    same "a user that the server cannot become: the unit has failed, without a restart" "failed 34 0" \
        "$(show ActiveState) $(show ExecMainStatus) $(show NRestarts)"
    setting BEANSTALKD_EXTRA '-u no-such-user'
    again start beanstalkd 2>/dev/null
    same "a user that does not exist: the unit has failed, without a restart" \
        "failed 33 0" "$(show ActiveState) $(show ExecMainStatus) $(show NRestarts)"
    setting BEANSTALKD_EXTRA '"-b /var/lib/beanstalkd"'
    rm -r /var/lib/beanstalkd/damaged
    again start beanstalkd
}

standby() {
    echo "# a standby: nothing waits until it serves"
    systemctl stop beanstalkd
    hold_lock
    setting BEANSTALKD_EXTRA '"-b /var/lib/beanstalkd --wait-for-lock --metrics 127.0.0.1:11400"'
    drop_in watchdog '[Service]\nWatchdogSec=2s\n'
    check "a standby starts" timeout 20 systemctl start beanstalkd
    check "its status says that it waits for the lock" grep -q '^standby: waiting for the lock' <(show StatusText)
    check "the standby does not serve clients" \
        grep -q ' 503 ' <(printf 'GET /readyz HTTP/1.0\r\n\r\n' | nc -w5 127.0.0.1 11400)
    systemctl enable --quiet --now beanstalkd@11301
    local process instance
    instance=$(show MainPID beanstalkd@11301.service)
    process=$(show MainPID)
    check "an upgrade beside a standby succeeds" install_package ours
    check "the upgrade restarts the standby" [ "$(show MainPID)" != "$process" ]
    check "the upgrade does not restart an instance that serves" \
        [ "$(show MainPID beanstalkd@11301.service)" = "$instance" ]
    check "the instance serves after the upgrade" within 10 ours "127.0.0.1 11301"
    same "no job of systemd waits for a server" "" "$(systemctl list-jobs --no-legend | grep beanstalkd)"
    process=$(show MainPID)
    sleep 5 # twice as long as the watchdog waits
    same "the watchdog does not restart the standby" "$process 0" "$(show MainPID) $(show NRestarts)"
    kill $holder
    check "the lock is free: the standby serves" within 10 ours
    kill -STOP "$process"
    check "the watchdog restarts a standby that serves and then hangs" \
        within 30 eval '[ "$(show MainPID)" != '"$process"' ] && ours'
    no_drop_ins
    setting BEANSTALKD_EXTRA '"-b postgresql://127.0.0.1:9/jobs?queue=mail --wait-for-lock"'
    systemctl stop beanstalkd
    check "a standby whose database cannot be reached starts" timeout 20 systemctl start beanstalkd
    check "its status says that it waits for PostgreSQL" grep -q '^standby: waiting for postgresql' <(show StatusText)
    setting BEANSTALKD_EXTRA '"-b /var/lib/beanstalkd"'
    systemctl restart beanstalkd
}

watchdog() {
    echo "# a server that hangs"
    same "the time of the watchdog" 30s "$(show WatchdogUSec)"
    drop_in watchdog '[Service]\nWatchdogSec=2s\n'
    systemctl restart beanstalkd
    local hung
    hung=$(show MainPID)
    kill -STOP "$hung"
    check "systemd ends a server that hangs, and starts it again" \
        within 30 eval '[ "$(show MainPID)" != '"$hung"' ] && ours'
    same "restarts by the watchdog" 1 "$(show NRestarts)"
    no_drop_ins
}

socket() {
    echo "# the socket unit, as doc/operations.md says, while the service runs"
    systemctl restart beanstalkd
    systemctl enable --quiet beanstalkd.socket
    systemctl stop beanstalkd
    check "the socket unit starts" systemctl start beanstalkd.socket
    same "the service has not started" inactive "$(show ActiveState)"
    check "a client starts the service" ours
    same "warnings in the log of the service" \
        "" "$(journalctl -q -o cat -p warning "_SYSTEMD_INVOCATION_ID=$(show InvocationID)")"
    check "the service has a log" \
        grep -q listening <(journalctl -q -o cat "_SYSTEMD_INVOCATION_ID=$(show InvocationID)")
    systemctl restart beanstalkd &
    local missed=0
    for _ in $(seq 20); do answers || missed=$((missed + 1)); done
    wait $!
    same "clients that a restart refused" 0 $missed
    systemctl stop beanstalkd
    hold_lock
    printf 'stats\r\n' | nc -q200 127.0.0.1 11300 >$report/patient &
    check "a client comes while the lock is in use: systemd starts the server again and again" within 120 restarted 6
    kill $holder
    check "this client gets its reply" within 40 grep -q '^OK ' $report/patient
    systemctl disable --quiet --now beanstalkd.socket
    systemctl restart beanstalkd
    check "the service serves without the socket unit" ours
}

socket_owner() {
    echo "# a unix socket for a group, as doc/security.md says"
    groupadd --system web
    useradd --system --groups web worker
    useradd --system outsider
    local listener='--listen unix:/run/beanstalkd/socket --socket-mode 660 --socket-owner beanstalkd:web'
    setting BEANSTALKD_EXTRA "\"-b /var/lib/beanstalkd $listener\""
    drop_in group '[Service]\nSupplementaryGroups=web\n'
    again restart beanstalkd
    as() { printf 'stats\r\n' | setpriv --reuid="$1" --regid="$1" --init-groups nc -q1 -U "$2" 2>&1 | head -n 1; }
    check "a member of the group connects" grep -q '^OK ' <(as worker /run/beanstalkd/socket)
    check "another user cannot connect" grep -q 'Permission denied' <(as outsider /run/beanstalkd/socket)
    setting BEANSTALKD_EXTRA '"-b /var/lib/beanstalkd"'
    no_drop_ins
    mkdir -p /run/systemd/system/beanstalkd.socket.d
    printf '[Socket]\nListenStream=/run/beanstalkd.socket\nSocketGroup=web\nSocketMode=0660\n' \
        >/run/systemd/system/beanstalkd.socket.d/group.conf
    systemctl daemon-reload
    systemctl stop beanstalkd
    again start beanstalkd.socket beanstalkd
    check "a member of the group connects with the socket unit" grep -q '^OK ' <(as worker /run/beanstalkd.socket)
    check "another user cannot connect with the socket unit" \
        grep -q 'Permission denied' <(as outsider /run/beanstalkd.socket)
    rm -r /run/systemd/system/beanstalkd.socket.d
    systemctl daemon-reload
    systemctl stop beanstalkd.socket beanstalkd
    again start beanstalkd
}

guarded() {
    echo "# TLS and access rules, with files that only root can read, as the unit says"
    install -d -m 700 /etc/ssl/beanstalkd
    install -m 600 /opt/cert.pem /opt/key.pem /etc/ssl/beanstalkd
    echo token-of-the-team-that-is-long-enough >/opt/token
    printf '[identities.team]\ntokens = ["%s"]\nproduce = ["mail"]\n' "$(beanstalkd --hash-token </opt/token)" \
        >/etc/ssl/beanstalkd/access.toml
    local credentials="" file
    for file in cert.pem key.pem access.toml; do credentials+="LoadCredential=$file:/etc/ssl/beanstalkd/$file\n"; done
    drop_in tls "[Service]\n$credentials"
    local files=/run/credentials/beanstalkd.service
    local tls="--listen tls://127.0.0.1:11305 --tls-cert $files/cert.pem --tls-key $files/key.pem"
    setting BEANSTALKD_EXTRA "\"--access $files/access.toml $tls\""
    again restart beanstalkd
    check "the service with TLS and access rules starts" within 10 active
    ctl() { beanstalkctl --server 127.0.0.1:11305 --tls --ca /opt/cert.pem "$@"; }
    check "a client with a token puts over TLS" ctl --token-file /opt/token put mail hello
    check "the rules refuse its put into another tube" not ctl --token-file /opt/token put other hello
    same "an anonymous client may do nothing" FORBIDDEN "$(say 'list-tubes\r\n')"

    install -m 644 /etc/ssl/beanstalkd/access.toml /etc/beanstalkd-access.toml
    setting BEANSTALKD_EXTRA "\"--access /etc/beanstalkd-access.toml $tls\""
    again restart beanstalkd
    check "the service starts with an access file that a reload can read" \
        within 10 ctl --token-file /opt/token put mail hello
    echo '[identities.team]' >/etc/beanstalkd-access.toml
    check "a reload with other rules succeeds" systemctl reload beanstalkd
    check "the other rules are in force" within 10 not ctl --token-file /opt/token put mail hello
    echo '[identities.team' >/etc/beanstalkd-access.toml
    check "a reload fails if the server refuses the file" not systemctl reload beanstalkd
    check "the log says why the reload has failed" \
        within 10 grep -q '/etc/beanstalkd-access.toml: line 1' <(journalctl -q -o cat -u beanstalkd)
    check "the server still runs" active
    setting BEANSTALKD_EXTRA '"-b /var/lib/beanstalkd"'
    no_drop_ins
    again restart beanstalkd
    check "the server serves without access rules" within 10 ours
    local process
    process=$(show MainPID)
    check "a reload without files to read succeeds" systemctl reload beanstalkd
    check "this reload does nothing" eval 'ours && [ "$(show MainPID)" = '"$process"' ]'
}

removal() {
    echo "# removed and purged"
    say 'put 0 0 60 4\r\nkept\r\n' >/dev/null
    systemctl enable --quiet beanstalkd@11302
    check "the package is removed" eval 'dpkg -r beanstalkd >$report/dpkg 2>&1'
    check "the service has stopped after the removal" not answers
    check "beanstalkd@11301 has stopped after the removal" not answers "127.0.0.1 11301"
    check "the removal keeps the settings" [ -e /etc/default/beanstalkd ]
    check "the package is purged" eval 'dpkg -P beanstalkd >$report/dpkg 2>&1'
    same "files that the purge has left" "" \
        "$(find /etc/default/beanstalkd /etc/systemd /var/lib/systemd -name '*beanstalkd*' 2>/dev/null)"
    check "the purge keeps the jobs" [ -e /var/lib/beanstalkd/lock ]
    check "a new installation succeeds" install_package ours
    check "the server serves after a new installation" within 10 ours
    check "a new installation has settings" grep -q '^BEANSTALKD_LISTEN_ADDR=127.0.0.1' /etc/default/beanstalkd
}

if [ ! -e /opt/booted ]; then
    touch /opt/booted
    echo "# systemd $(systemctl --version | sed -n '1s/systemd \([^ ]*\).*/\1/p') has booted"
    # The network never comes online: whatever waits for it hangs.
    {
        printf '[Unit]\nBefore=network-online.target\n[Service]\nType=oneshot\nExecStart=sleep infinity\n'
        printf '[Install]\nWantedBy=network-online.target\n'
    } >/etc/systemd/system/wait-online.service
    systemctl enable --quiet wait-online
    upgrade_with_data
    order_at_boot "after the upgrade"
    hidden_paths
    directories
    hand_over
    healing
    standby
    watchdog
    socket
    socket_owner
    guarded
    systemctl enable --quiet beanstalkd@11301
    echo "# again, from the start"
    systemctl reboot
else
    order_at_boot "after a boot"
    check "beanstalkd@11301 serves after the boot" within 30 ours "127.0.0.1 11301"
    removal
    same "what systemd does not understand of the units" "" \
        "$(journalctl -q -o cat _PID=1 | grep '^/.*/beanstalkd.*:[0-9]*:')"
    if [ -e $failed ]; then echo "failed: $(wc -l <$failed)" >$report/result; else echo good >$report/result; fi
fi
