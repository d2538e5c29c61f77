//! The part of the completions that asks the server for its tubes, after the part that clap generates.
//!
//! A tube name can look like a command of the shell, such as `$(reboot)`: no script evaluates one.

use clap::Command;
use clap_complete::Shell;

/// The options that say which server is asked, as the scripts look for them.
const SERVER_OPTIONS: &str = "-s|--server|--ca|--cert|--key|--token-file";

/// The commands that take tubes.
fn commands(cli: &Command) -> Vec<&str> {
    let takes_tubes = |command: &&Command| {
        command.get_positionals().any(|argument| ["tube", "tubes"].contains(&argument.get_id().as_str()))
    };
    cli.get_subcommands().filter(takes_tubes).map(Command::get_name).collect()
}

/// The generated script with completions of tube names.
pub fn with_tubes(shell: Shell, script: &str, cli: &Command) -> String {
    match shell {
        Shell::Bash => bash(script, cli),
        Shell::Zsh => zsh(script),
        Shell::Fish => fish(script, cli),
        _ => script.to_owned(),
    }
}

fn bash(script: &str, cli: &Command) -> String {
    let functions = BASH.replace("COMMANDS", &commands(cli).join("|")).replace("OPTIONS", SERVER_OPTIONS);
    let (script, registration) = script.split_at(script.rfind("if [[ \"${BASH_VERSINFO").unwrap());
    let registration = registration.replace("-F _beanstalkctl ", "-F _beanstalkctl_and_tubes ");
    format!("{script}{functions}{registration}")
}

const BASH: &str = r#"# Asks the server that the line names for its tubes.
_beanstalkctl_tubes() {
    local -a words options=(--timeout 1s)
    local i
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    for ((i = 1; i + 1 < ${#words[@]}; i++)); do
        case "${words[i]}" in
            OPTIONS) options+=("${words[i]}" "${words[i + 1]}") ;;
            --server=*|--ca=*|--cert=*|--key=*|--token-file=*|--tls) options+=("${words[i]}") ;;
        esac
    done
    "${words[0]}" "${options[@]}" tubes --json 2>/dev/null </dev/null | sed -n 's/.*"name":"\([^"]*\)".*/\1/p' | sort -u
}

_beanstalkctl_and_tubes() {
    _beanstalkctl "$@"
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD - 1]}" command="" word name
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "${word}" in
            COMMANDS) command="${command:-${word}}" ;;
            --) return ;;
        esac
    done
    case "${prev}" in
        -t|--tube|--to) ;;
        -y|--yes|--dry-run|--json|--tls|--buried|--drain|--force|-r|--reverse|--until-empty)
            [[ -n "${command}" ]] || return ;;
        -*|=|:) return ;;
        *) [[ -n "${command}" ]] || return ;;
    esac
    [[ "${cur}" == -* ]] && return
    COMPREPLY=()
    while IFS= read -r name; do
        [[ "${name}" == "${cur}"* ]] && COMPREPLY+=("$(printf %q "${name}")")
    done < <(_beanstalkctl_tubes)
}

"#;

fn zsh(script: &str) -> String {
    let takes_tube =
        |line: &str| ["]:TUBE:_default", ":tube -- ", ":tubes -- "].iter().any(|part| line.contains(part));
    let with_names = |line: &str| {
        if takes_tube(line) { line.replace(":_default'", ":_beanstalkctl_tubes'") } else { line.to_owned() }
    };
    let lines: Vec<String> = script.lines().map(with_names).collect();
    let functions = ZSH.replace("OPTIONS", SERVER_OPTIONS);
    let text = lines.join("\n") + "\n";
    let (head, rest) = text.split_at(text.find("_beanstalkctl() {").unwrap());
    format!("{head}{functions}{rest}")
}

const ZSH: &str = r#"# Asks the server that the line names for its tubes.
_beanstalkctl_tubes() {
    local -a asked names
    asked=(--timeout 1s)
    local i
    for ((i = 2; i < CURRENT; i++)); do
        case "${words[i]}" in
            (OPTIONS) asked+=("${words[i]}" "${words[i + 1]}") ;;
            (--server=*|--ca=*|--cert=*|--key=*|--token-file=*|--tls) asked+=("${words[i]}") ;;
        esac
    done
    names=("${(@f)$(beanstalkctl $asked tubes --json 2>/dev/null </dev/null |
        sed -n 's/.*"name":"\([^"]*\)".*/\1/p' | sort -u)}")
    compadd -a names
}

"#;

fn fish(script: &str, cli: &Command) -> String {
    let mut text = format!("{script}{FISH}");
    let all = commands(cli).join(" ");
    text.push_str(&format!(
        "complete -c beanstalkctl -n \"__fish_seen_subcommand_from {all}\" -f -a \"(__beanstalkctl_tubes)\"\n"
    ));
    for command in cli.get_subcommands() {
        for option in command.get_opts() {
            let (name, short) = (command.get_name(), option.get_short());
            let short = short.map_or_else(String::new, |short| format!("-s {short} "));
            let Some(long @ ("tube" | "to")) = option.get_long() else { continue };
            text.push_str(&format!(
                "complete -c beanstalkctl -n \"__fish_seen_subcommand_from {name}\" \
                 {short}-l {long} -x -a \"(__beanstalkctl_tubes)\"\n"
            ));
        }
    }
    text
}

const FISH: &str = r#"
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
"#;
