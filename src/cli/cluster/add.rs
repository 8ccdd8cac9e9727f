//! `linesman cluster add`, and what it shares with `readopt`: the adoption YAML and the wait after it.

use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde::Serialize;

use super::proxy::Way;
use super::wait::{self, Before, For};
use super::{Engine, Level};
use crate::cli::connect::{Access, Connect, is_stdin};
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Format, document, done, emit, progress_line};
use crate::cli::session::Replacement;
use crate::hub::image;
use crate::manifests::{self, EngineNamespaces, scope};
use crate::wire::api::{
    AccessLevel, AdoptionChanges, AdoptionOptions, GitRoute, NewCluster, ScopeOptions,
    ToldAdoption, ToldCluster,
};
use crate::wire::id::{ClusterName, Digest};

const EXAMPLES: &str = "\
Examples:
  linesman cluster add eu1 > adopt.yaml             # then, in the cluster: kubectl apply -f adopt.yaml
  linesman cluster add eu1 --wait | kubectl apply -f -
  linesman cluster add eu1 --label env=prod --access view --file adopt.yaml
  linesman cluster add us1 --engine argocd --engine-namespace gitops
  linesman cluster add shared3 --namespaces shop,shop-db --access edit
  linesman cluster add edge7 --git-over-line        # a site that reaches nothing but the hub
  linesman cluster add eu1 --agent-copy --file adopt.yaml    # a deleted agent comes back by the engine
  pass show proxy | linesman cluster add dmz2 --https-proxy-file - --no-proxy .corp.example
  linesman cluster add eu1 --print-url              # kubectl apply -f https://…, for a publicly trusted hub

The YAML holds a join token: single use, good for 24 h. Keep it like a password until it is applied.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name: a-z, 0-9 and '-', at most 40
    name: ClusterName,
    /// The GitOps engine to install
    #[arg(long, value_enum, default_value = "flux")]
    engine: Engine,
    /// The engine's bundle, sha256:…; without it, the newest imported one
    #[arg(long, value_name = "DIGEST")]
    bundle: Option<Digest>,
    /// Argo CD's namespace, where it is not to be argocd
    #[arg(long, value_name = "NAME", value_parser = manifests::engine_namespace)]
    engine_namespace: Option<String>,
    /// A label of the cluster; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Let the engine reach the Git host over the line: all that the cluster then reaches is the hub's HTTPS
    #[arg(long)]
    git_over_line: bool,
    /// Keep a copy of the agent in the catalog, from which the engine brings it back; see 'linesman cluster agent-copy --help'
    #[arg(long)]
    agent_copy: bool,
    #[command(flatten)]
    adoption: Adoption,
    #[command(flatten)]
    connect: Connect,
}

/// Which namespaces the YAML covers.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Covered {
    /// Cover these namespaces only, with commas between; see docs/operating.md
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// The agent reads the engine's namespace and its own only; people get at most view
    #[arg(long)]
    strict: bool,
}

impl Covered {
    /// None = nothing was said.
    pub(in crate::cli) fn options(&self) -> Result<Option<ScopeOptions>, Failure> {
        let options = ScopeOptions {
            namespaces: self
                .namespaces
                .iter()
                .map(|n| n.trim().to_owned())
                .collect(),
            strict: self.strict,
        };
        scope::check(&options, &EngineNamespaces::default()).map_err(|wrong| {
            let next = "correct --namespaces";
            Failure::new(Code::Usage, wrong.to_string(), next)
        })?;
        Ok(Some(options).filter(|options| !options.is_whole()))
    }
}

/// What `add` and `readopt` have in common.
#[derive(Debug, clap::Args)]
pub(super) struct Adoption {
    /// The highest access group that is bound in the cluster; those above it get nothing there [default: admin, or as it was]
    #[arg(long, value_enum)]
    access: Option<Level>,
    #[command(flatten)]
    covered: Covered,
    /// How long the join token lives: 5m to 7d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = token_ttl)]
    token_ttl: Duration,
    /// The agent's image [default: the hub's, or as it was]
    #[arg(long, value_name = "REF")]
    image: Option<String>,
    /// Secret of the namespace `linesman` to pull the image with
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Option<String>,
    #[command(flatten)]
    pub(super) way: Way,
    /// Write the YAML to this file (0600) instead of stdout
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print the kubectl line with the hub's URL of the YAML instead of the YAML
    #[arg(long, conflicts_with = "file")]
    print_url: bool,
    /// Then wait until the cluster is adopted, telling each step: 5m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "5m", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Print the hub's answer in this form: the YAML is in it, or in the file of --file alone
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

impl Adoption {
    /// What was said; `proxy` is the [`Way::url`].
    pub(super) fn changes(&self, proxy: Option<String>) -> Result<AdoptionChanges, Failure> {
        Ok(AdoptionChanges {
            image: self.image.clone(),
            access: self.access.map(Into::into),
            scope: self.covered.options()?,
            // The parser bounds it by seven days.
            token_ttl: Some(u32::try_from(self.token_ttl.as_secs()).unwrap_or(u32::MAX)),
            image_pull_secret: self.image_pull_secret.clone(),
            https_proxy: proxy,
            no_proxy: self.way.no_proxy.clone(),
            engine_namespace: None,
        })
    }
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let proxy = args.adoption.way.url(&args.connect)?;
    let access = args.connect.access().await?;
    let client = access.user_client()?;
    args.adoption.check(&access)?;
    let file = args.adoption.open()?;
    let adoption = AdoptionChanges {
        engine_namespace: args.engine_namespace,
        ..args.adoption.changes(proxy)?
    };
    let new = NewCluster {
        name: args.name,
        engine: args.engine.into(),
        bundle: args.bundle,
        labels: args.labels.into_iter().collect(),
        git_route: if args.git_over_line {
            GitRoute::Line
        } else {
            GitRoute::Auto
        },
        agent_copy: args.agent_copy,
        adoption: adoption.of(&AdoptionOptions::default()),
    };
    let answer = client.add_cluster(&new).await?;
    let ca = args.connect.ca.as_deref();
    let done = ("added", None);
    hand_out(&answer, (&args.adoption, file), (&access, ca), done).await
}

impl Adoption {
    /// Refuses what cannot work before the hub changes anything.
    pub(super) fn check(&self, access: &Access) -> Result<(), Failure> {
        if self.print_url && access.ca.is_some() {
            return Err(Failure::new(
                Code::Usage,
                "kubectl trusts the system's CAs only, and this hub has its own",
                "write the YAML to a file instead: --file adopt.yaml",
            ));
        }
        if self.output == Some(Format::Name) && self.file.is_none() {
            return Err(Failure::new(
                Code::Usage,
                "-o name prints the name alone, and the YAML with its join token would be lost",
                "say where the YAML is to go: --file adopt.yaml",
            ));
        }
        Ok(())
    }

    /// The file for the YAML, opened: what cannot be written is known before the hub changes anything.
    pub(super) fn open(&self) -> Result<Option<Replacement>> {
        self.file.as_deref().map(Replacement::open).transpose()
    }
}

/// Gives the YAML to the operator and says what comes next; then waits, where asked to, for what comes after `before`.
pub(super) async fn hand_out(
    answer: &ToldAdoption,
    (adoption, file): (&Adoption, Option<Replacement>),
    (access, ca): (&Access, Option<&Path>),
    (done, before): (&str, Option<&Before>),
) -> Result<()> {
    let name = &answer.cluster.name;
    progress_line(&format!(
        "cluster {name} {done}; its join token is good until {}",
        answer.token_expires_at
    ));
    if let Some(branch) = &answer.proposed {
        progress_line(&format!(
            "its files wait on the catalog's branch {branch}, because the head has to be signed; in a clone:\n  \
             git fetch && git merge -S --no-ff origin/{branch} && git push"
        ));
    }
    if let Some(warning) = image_of(&answer.yaml).and_then(image::without_registry) {
        progress_line(&format!("warning: {warning}"));
        progress_line(&format!(
            "         name one that it can pull: linesman cluster readopt {name} --image REGISTRY/…"
        ));
    }
    if let Some(warning) = lowered(adoption.access, &answer.yaml) {
        progress_line(&warning);
    }
    give(answer, adoption, file)?;
    let Some(limit) = adoption.wait else {
        let after = before.map(|before| format!(" --after {before}"));
        let after = after.unwrap_or_default();
        progress_line(&format!("then:  linesman cluster wait {name}{after}"));
        return Ok(());
    };
    if adoption.file.is_some() || io::stdout().is_terminal() {
        return wait::until(&access.client()?, name, (For::Adopted, before), limit).await;
    }
    Err(wait_with_stdout_closed((name, before), access, ca, limit))
}

/// The hub's answer where the YAML goes another way.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rest<'a> {
    cluster: &'a ToldCluster,
    token_expires_at: &'a str,
    /// It holds the join token as the YAML does.
    #[serde(skip_serializing_if = "Option::is_none")]
    adopt_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proposed: Option<&'a str>,
}

impl<'a> Rest<'a> {
    fn of(answer: &'a ToldAdoption, adopt_url: Option<&'a str>) -> Self {
        Self {
            cluster: &answer.cluster,
            token_expires_at: &answer.token_expires_at,
            adopt_url,
            proposed: answer.proposed.as_deref(),
        }
    }
}

fn give(answer: &ToldAdoption, adoption: &Adoption, file: Option<Replacement>) -> Result<()> {
    let name = &answer.cluster.name;
    let lost = |e: anyhow::Error| {
        let next = format!(
            "the cluster is recorded; print its YAML again: linesman cluster readopt {name}"
        );
        Failure::new(Code::Failed, format!("{e:#}"), next)
    };
    if let (Some(path), Some(file)) = (&adoption.file, file) {
        file.write(answer.yaml.as_bytes()).map_err(|e| {
            let next = format!(
                "make room, then: linesman cluster readopt {name} --file {}",
                path.display()
            );
            Failure::new(Code::Failed, format!("{e:#}"), next)
        })?;
        let format = adoption.output.unwrap_or(Format::Table);
        done(format, name.as_str(), &Rest::of(answer, None))?;
        progress_line(&format!("next:  kubectl apply -f {}", path.display()));
        return Ok(());
    }
    if adoption.print_url {
        let url = answer.adopt_url.as_str();
        let told = match adoption.output {
            Some(format @ (Format::Json | Format::Yaml)) => {
                document(format, &Rest::of(answer, Some(url)))?
            }
            Some(Format::Table | Format::Wide | Format::Name) | None => {
                format!("kubectl apply -f {url}\n")
            }
        };
        return Ok(emit(&told).map_err(lost)?);
    }
    match adoption.output {
        Some(format @ (Format::Json | Format::Yaml)) => {
            Ok(emit(&document(format, answer)?).map_err(lost)?)
        }
        Some(Format::Name) => emit(&format!("{name}\n")),
        Some(Format::Table | Format::Wide) | None => {
            emit(&answer.yaml).map_err(lost)?;
            if io::stdout().is_terminal() {
                progress_line(
                    "next:  save this YAML and apply it in the cluster: kubectl apply -f FILE",
                );
                progress_line(&format!(
                    "       (written to a file: linesman cluster readopt {name} --file adopt.yaml)"
                ));
            }
            Ok(())
        }
    }
}

/// The agent's image in adoption YAML.
fn image_of(yaml: &str) -> Option<&str> {
    let mut images = yaml.lines().filter_map(|line| {
        let image = line
            .trim_start_matches(['-', ' '])
            .strip_prefix("image: ")?;
        Some(image.trim().trim_matches(['"', '\'']))
    });
    images.next()
}

/// What is said where the YAML gives people less than `--access` asks for.
fn lowered(asked: Option<Level>, yaml: &str) -> Option<String> {
    let asked = AccessLevel::from(asked?);
    // Of `linesman-scope`: nothing else in the YAML has such a key.
    let mut said = yaml
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("strict: "));
    let strict = said.any(|value| value.trim().trim_matches(['"', '\'']) == "true");
    (strict && asked > AccessLevel::View).then(|| {
        let asked = asked.as_str();
        format!(
            "warning: --strict binds no access group above view, so --access {asked} counts as view"
        )
    })
}

/// `cluster add eu1 --wait | kubectl apply -f -`: kubectl applies only after its stdin ends, so our stdout has to
/// close before the wait. This process goes on as `cluster wait` with stdout on nothing; returns only the error.
fn wait_with_stdout_closed(
    (name, before): (&ClusterName, Option<&Before>),
    access: &Access,
    ca: Option<&Path>,
    limit: Duration,
) -> anyhow::Error {
    let mut command = match std::env::current_exe() {
        Ok(exe) => Command::new(exe),
        Err(e) => return anyhow!(e).context("find this program"),
    };
    command.args(["cluster", "wait", name.as_str(), "--hub", &access.hub]);
    command.args(["--timeout", &duration::show(limit)]);
    if let Some(before) = before {
        command.arg("--after").arg(before.to_string());
    }
    if let Some(ca) = ca {
        command.arg("--ca").arg(ca);
    }
    if let Some(file) = &access.token_file {
        command.arg("--token-file").arg(file);
    }
    if access.token_file.as_deref().is_some_and(is_stdin) {
        match piped(access) {
            Ok(stdin) => command.stdin(stdin),
            Err(e) => return anyhow!(e).context("hand on the token"),
        };
    }
    anyhow!(command.stdout(Stdio::null()).exec()).context("go on as 'linesman cluster wait'")
}

/// Stdin gave the token once; who goes on finds it there again. A pipe holds it whole, for it is short.
fn piped(access: &Access) -> io::Result<io::PipeReader> {
    let (reader, mut writer) = io::pipe()?;
    let token = access.token.as_ref();
    writer.write_all(token.map(|t| t.expose().as_bytes()).unwrap_or_default())?;
    Ok(reader)
}

pub(super) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is not a label; write KEY=VALUE")),
    }
}

fn token_ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration::parse(text)?;
    let bounds = Duration::from_mins(5)..=Duration::from_hours(7 * 24);
    if bounds.contains(&ttl) {
        Ok(ttl)
    } else {
        Err("a join token lives between 5m and 7d".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::report::Phase;

    #[test]
    fn the_agents_image_is_found_in_its_yaml() {
        let yaml = "kind: Deployment\nspec:\n  containers:\n  - image: linesman-agent:1\n    name: agent\n";
        assert_eq!(image_of(yaml), Some("linesman-agent:1"));
        assert_eq!(image_of("kind: Secret\n"), None);
    }

    #[test]
    fn blanks_between_namespaces_are_no_part_of_their_names() {
        let covered = |list: &[&str]| Covered {
            namespaces: list.iter().map(|name| (*name).to_owned()).collect(),
            strict: false,
        };
        let options = ScopeOptions {
            namespaces: ["shop", "mail"].map(str::to_owned).to_vec(),
            strict: false,
        };
        assert_eq!(covered(&["shop", " mail "]).options(), Ok(Some(options)));
        assert!(covered(&["shop", " "]).options().is_err());
    }

    /// What was lowered in silence looked like what was asked for.
    #[test]
    fn whoever_asks_for_more_than_strict_gives_is_told() {
        let yaml = |strict: bool| {
            let options = ScopeOptions {
                namespaces: vec!["shop".to_owned()],
                strict,
            };
            let values = manifests::AdoptionValues {
                scope: scope::Scope::of(&options, AccessLevel::Admin, "flux-system"),
                ..manifests::AdoptionValues::placeholders()
            };
            manifests::to_yaml(&manifests::adoption(&values))
        };
        let text = |asked: &str| {
            format!(
                "warning: --strict binds no access group above view, so --access {asked} counts as view"
            )
        };
        for (asked, strict, told) in [
            (Some(Level::Admin), true, Some(text("admin"))),
            (Some(Level::Edit), true, Some(text("edit"))),
            (Some(Level::View), true, None),
            (Some(Level::Off), true, None),
            (None, true, None),
            (Some(Level::Admin), false, None),
        ] {
            assert_eq!(lowered(asked, &yaml(strict)), told, "{asked:?} {strict}");
        }
    }

    /// Nothing was printed where the YAML went into a file.
    #[test]
    fn a_program_is_told_all_but_the_token_that_went_another_way() {
        let cluster = wait::tests::cluster(Phase::Pending, &[], vec![]);
        let answer = ToldAdoption {
            cluster,
            yaml: "token: lmj1.a.b".to_owned(),
            token_expires_at: "2026-01-02T00:00:00Z".to_owned(),
            adopt_url: "https://hub/adopt/lmj1.a.b.yaml".to_owned(),
            proposed: None,
        };
        let told = document(Format::Json, &Rest::of(&answer, None)).unwrap();
        assert!(!told.contains("lmj1."), "{told}");
        let mut whole = serde_json::to_value(&answer).unwrap();
        let whole = whole.as_object_mut().unwrap();
        whole.remove("yaml");
        let url = answer.adopt_url.as_str();
        let with_url = serde_json::to_value(Rest::of(&answer, Some(url))).unwrap();
        assert_eq!(with_url.as_object(), Some(&*whole));
        whole.remove("adoptUrl");
        let without = serde_json::to_value(Rest::of(&answer, None)).unwrap();
        assert_eq!(without.as_object(), Some(&*whole));
    }

    #[test]
    fn labels_and_token_lives_are_checked_before_the_hub_is_asked() {
        assert_eq!(
            label("env=prod=eu"),
            Ok(("env".to_owned(), "prod=eu".to_owned()))
        );
        assert!(label("env").is_err() && label("=x").is_err());
        assert!(token_ttl("5m").is_ok() && token_ttl("7d").is_ok());
        assert!(token_ttl("4m").is_err() && token_ttl("8d").is_err());
    }
}
