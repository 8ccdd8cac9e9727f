//! Where the adoption YAML goes: to stdout, into a file, or into the hub's answer; what is said beside it, and the wait after it.

use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde::Serialize;

use super::Adoption;
use crate::cli::cluster::Level;
use crate::cli::cluster::wait::{self, Before, For};
use crate::cli::connect::{Access, is_stdin};
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Format, document, done, emit, progress_line};
use crate::cli::session::Replacement;
use crate::hub::image;
use crate::wire::api::{AccessLevel, ToldAdoption, ToldCluster};
use crate::wire::id::ClusterName;

/// Gives the YAML to the operator and says what comes next; then waits, where asked to, for what comes after `before`.
pub(in crate::cli::cluster) async fn hand_out(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::{self, scope};
    use crate::wire::api::ScopeOptions;
    use crate::wire::report::Phase;

    #[test]
    fn the_agents_image_is_found_in_its_yaml() {
        let yaml = "kind: Deployment\nspec:\n  containers:\n  - image: linesman-agent:1\n    name: agent\n";
        assert_eq!(image_of(yaml), Some("linesman-agent:1"));
        assert_eq!(image_of("kind: Secret\n"), None);
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
}
