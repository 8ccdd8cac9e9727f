use std::time::Duration;

use clap::CommandFactory as _;

use super::*;

#[test]
fn the_grammar_holds_together() {
    Cli::command().debug_assert();
}

/// W23: the agent has a parser of its own, which reads what the one of all verbs does.
#[test]
fn the_agent_is_parsed_alone_as_among_all_verbs() {
    let given = |rest: &[&str]| -> Vec<OsString> {
        let all = ["linesman", "agent"].iter().chain(rest);
        all.map(OsString::from).collect()
    };
    let full = [
        "--scoped",
        "--log",
        "debug",
        "--log-format=json",
        "--listen",
        "127.0.0.1:1",
    ];
    for args in [given(&[]), given(&full)] {
        assert!(OfAgent::try_parse_from(&args).is_ok(), "{args:?}");
        let among_all = Cli::try_parse_from(&args).unwrap();
        assert_eq!(
            format!("{:?}", parse(&args).unwrap()),
            format!("{among_all:?}")
        );
    }
    for wrong in ["--nonsense", "--help"] {
        let said = parse(&given(&[wrong])).unwrap_err().to_string();
        let full = Cli::try_parse_from(given(&[wrong])).unwrap_err();
        assert_eq!(said, full.to_string());
    }
}

/// Of every flag of every verb.
#[test]
fn a_variable_that_is_empty_gives_no_flag_its_value() {
    fn variables(command: &clap::Command) -> usize {
        let own = command.get_arguments().filter(|a| a.get_env().is_some());
        own.count() + command.get_subcommands().map(variables).sum::<usize>()
    }
    let left = |empty: bool| variables(&without(Cli::command(), &|_| empty));
    assert_eq!((left(true), left(false)), (0, variables(&Cli::command())));
}

/// `--wait 15m` waited for its default, and 15m was another version, registry or Git host.
#[test]
fn a_time_behind_a_blank_is_asked_back_where_a_name_would_fit() {
    for verb in [
        &["engine", "set", "eu1", "flux"][..],
        &["engine", "mirror", "--cluster", "eu1"],
        &["githost", "rotate-host-key"],
    ] {
        let args = [&["linesman"][..], verb, &["--wait", "15m"]].concat();
        let said = Cli::try_parse_from(args).unwrap_err().to_string();
        assert!(said.contains("write --wait=15m"), "{said}");
    }
}

/// Ids of tokens are random base64url, so that one in 64 looks like a flag; a real flag stays one.
#[test]
fn a_tokens_id_may_begin_with_a_hyphen() {
    let command = [
        "linesman",
        "token",
        "revoke",
        "-aB_9",
        "--hub",
        "https://hub",
    ];
    let matches = Cli::command().try_get_matches_from(command).unwrap();
    let (_, token) = matches.subcommand().unwrap();
    let (_, revoke) = token.subcommand().unwrap();
    let given = |name| revoke.get_raw(name).unwrap().next().unwrap().to_owned();
    assert_eq!(
        (given("id"), given("hub")),
        ("-aB_9".into(), "https://hub".into())
    );
}

#[test]
fn every_verb_and_flag_says_what_it_is_for() {
    fn visit(command: &clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        assert!(command.get_about().is_some(), "{path} has no help");
        for arg in command.get_arguments().filter(|a| !a.is_hide_set()) {
            assert!(
                arg.get_help().is_some(),
                "{path}: {} has no help",
                arg.get_id()
            );
        }
        for sub in command.get_subcommands() {
            visit(sub, &path);
        }
    }
    visit(&Cli::command(), "");
}

/// `--wait` without a time waits for as long as its help says.
#[test]
fn each_wait_says_how_long_it_is() {
    fn visit(command: &clap::Command, path: &str, said: &mut Vec<String>) {
        for sub in subcommands(command) {
            let path = format!("{path} {}", sub.get_name());
            visit(sub, &path, said);
            let Some(wait) = sub.get_arguments().find(|a| a.get_id() == "wait") else {
                continue;
            };
            let given = sub.clone().ignore_errors(true);
            let given = given.try_get_matches_from([sub.get_name(), "--wait"]);
            let given = *given.unwrap().get_one::<Duration>("wait").unwrap();
            let told = format!(": {} at most, or TIME", duration::show(given));
            let help = wait.get_help().unwrap().to_string();
            said.push(format!("{path}: {}", help.contains(&told)));
        }
    }
    let mut said = Vec::new();
    visit(&Cli::command(), "linesman", &mut said);
    said.sort();
    let waits = [
        "cluster add",
        "cluster agent-copy",
        "cluster engine",
        "cluster git",
        "cluster lift",
        "cluster pause",
        "cluster readopt",
        "cluster resume",
        "cluster rotate",
        "cluster upgrade",
        "engine mirror",
        "engine set",
        "githost rotate-host-key",
    ];
    assert_eq!(said, waits.map(|verb| format!("linesman {verb}: true")));
}

/// Nothing breaks the lines of a help but the terminal, in the midst of words.
#[test]
fn no_line_below_the_flags_is_wider_than_a_terminal() {
    fn visit(command: &clap::Command, path: &str, wide: &mut Vec<String>) {
        let path = format!("{path} {}", command.get_name());
        for sub in subcommands(command) {
            visit(sub, &path, wide);
        }
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let lines = help.lines().filter(|line| line.chars().count() > 110);
        wide.extend(lines.map(|line| format!("{path}: {line}")));
    }
    let mut wide = Vec::new();
    visit(&Cli::command(), "", &mut wide);
    assert_eq!(wide, Vec::<String>::new());
}

/// `-o` is everywhere but where there is one form alone, which a program reads as it is.
#[test]
fn every_verb_has_examples_and_a_form_for_programs() {
    const ONE_FORM: [&str; 14] = [
        "linesman hub",
        "linesman hub manifests",
        "linesman agent",
        "linesman login",
        "linesman logout",
        "linesman kubeconfig",
        "linesman credential",
        "linesman manifests",
        "linesman completion",
        "linesman cluster argocd-secret",
        "linesman catalog clone",
        "linesman catalog init",
        "linesman audit tail",
        "linesman audit export",
    ];
    fn visit(command: &clap::Command, path: &str, lacks: &mut Vec<String>) {
        for sub in subcommands(command) {
            let path = format!("{path} {}", sub.get_name());
            visit(sub, &path, lacks);
            if sub.is_subcommand_required_set() {
                continue;
            }
            let help = sub.get_after_help().map(ToString::to_string);
            if !help.is_some_and(|help| help.contains("Example")) {
                lacks.push(format!("{path}: examples"));
            }
            let output = sub.get_arguments().any(|a| a.get_id() == "output");
            if output == ONE_FORM.contains(&path.as_str()) {
                lacks.push(format!("{path}: -o"));
            }
        }
    }
    let mut lacks = Vec::new();
    visit(&Cli::command(), "linesman", &mut lacks);
    assert_eq!(lacks, Vec::<String>::new());
}

/// `docs/cli.md` is made from the grammar: `LINESMAN_UPDATE_GOLDEN=1 cargo test --lib cli::tests` writes it.
#[test]
fn the_printed_reference_is_todays() {
    let path = "docs/cli.md";
    let mut command = Cli::command();
    command.build();
    let text = reference(&command);
    if std::env::var_os("LINESMAN_UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/cli.md is old; run: LINESMAN_UPDATE_GOLDEN=1 cargo test --lib cli::tests"
    );
}

/// What no flag names.
const ENVIRONMENT: &str = "
## Environment

A flag that may come from a variable names it (`Or LINESMAN_…`). The flag counts before its variable, and a variable that is empty counts as one that is not set. Besides, these are read:

| variable | what for |
|---|---|
| `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY` | the proxy of each HTTPS connection that the verbs and the hub make: to the hub, for `engine import`, to the identity provider, for `--audit-webhook`, `--notify-url` and `--notify-slack-url-file`. In small letters they count, too. An agent goes by `cluster add --https-proxy` and `--no-proxy`, and where these name no proxy by `HTTPS_PROXY` and `NO_PROXY` of its Pod |
| `SSL_CERT_FILE`, `SSL_CERT_DIR` | where the system's roots are, for all that is given no CA |
| `XDG_STATE_HOME`, `HOME` | where `login` keeps sessions and `catalog clone` its keys: `$XDG_STATE_HOME/linesman`, else `~/.local/state/linesman` |
| `KUBECONFIG` | `kubeconfig --merge` writes into the first file that it names, else into `~/.kube/config`; an agent outside a cluster reaches that by it |
| `BROWSER`, `DISPLAY`, `WAYLAND_DISPLAY` | which program `login` opens the browser with, and whether one can come up here |
| `NO_COLOR` | no colours on a terminal |
| `PATH` | where `git` is for `catalog clone` (the hub looks in `/usr/local/bin`, `/usr/bin` and `/bin`); `kubeconfig` names the program by its full path where it is not found there |
";

fn reference(root: &clap::Command) -> String {
    let mut parts = vec![
        "# The command line\n\nMade from the program's own grammar; a test keeps it so. \
         `linesman VERB --help` says the same.\n"
            .to_owned(),
        fenced(root.get_after_help()),
        "\nEvery verb takes:\n\n".to_owned(),
    ];
    parts.extend(root.get_arguments().filter(|a| a.is_global_set()).map(line));
    let whoami = root.find_subcommand("whoami").unwrap();
    parts.push("\nWhere a verb names them below, these are the same for each:\n\n".to_owned());
    parts.extend(whoami.get_arguments().filter(|a| is_shared(a)).map(line));
    parts.push(ENVIRONMENT.to_owned());
    parts.extend(subcommands(root).map(|sub| verb(sub, "linesman")));
    parts.concat()
}

fn subcommands(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|s| s.get_name() != "help")
}

fn fenced(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(|text| format!("\n```\n{text}\n```\n"))
        .unwrap_or_default()
}

fn verb(command: &clap::Command, path: &str) -> String {
    let path = format!("{path} {}", command.get_name());
    let below: String = subcommands(command).map(|sub| verb(sub, &path)).collect();
    if command.is_subcommand_required_set() {
        return below;
    }
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let own = |a: &&clap::Arg| !a.is_global_set() && !a.is_hide_set() && a.get_id() != "help";
    let own = command.get_arguments().filter(own);
    let (shared, own): (Vec<_>, Vec<_>) = own.partition(|a| is_shared(a));
    let mut arguments: String = own.into_iter().map(line).collect();
    if !shared.is_empty() {
        let flag = |a: &&clap::Arg| match a.get_short() {
            Some(short) => format!("`-{short}`"),
            None => format!("`--{}`", a.get_long().unwrap_or_default()),
        };
        let flags: Vec<String> = shared.iter().map(flag).collect();
        arguments.push_str("- ");
        arguments.push_str(&flags.join(", "));
        arguments.push_str(": as [above](#the-command-line).\n");
    }
    let after = fenced(command.get_after_help());
    format!("\n## {path}\n\n{about}.\n\n```\n{usage}\n```\n\n{arguments}{after}{below}")
}

/// The hub and the form of output, which nearly every verb has.
fn is_shared(arg: &clap::Arg) -> bool {
    let shown = arg.get_id() == "output" && !arg.get_default_values().is_empty();
    shown || arg.get_help_heading() == Some("Hub")
}

fn line(arg: &clap::Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let words = arg.get_possible_values();
    let words = words
        .iter()
        .map(clap::builder::PossibleValue::get_name)
        .collect::<Vec<_>>()
        .join(", ");
    let flag = arg.get_action().takes_values();
    let words = if words.is_empty() || !flag {
        String::new()
    } else {
        format!(" One of {words}.")
    };
    let default = arg
        .get_default_values()
        .iter()
        .map(|v| v.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    let default = if default.is_empty() || !flag {
        String::new()
    } else {
        format!(" Default `{default}`.")
    };
    let env = arg
        .get_env()
        .map(|e| format!(" Or `{}`.", e.to_string_lossy()))
        .unwrap_or_default();
    // Beside a long form the short one is not shown by itself.
    let short = arg.get_short().filter(|_| arg.get_long().is_some());
    let short = short.map(|short| format!("-{short}, ")).unwrap_or_default();
    format!(
        "- `{short}{}`: {help}.{words}{default}{env}\n",
        arg.to_string().replace('`', "")
    )
}
