//! Finds out which form of impersonation the role gets, and what may be done as somebody.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::Api;
use tokio::time::Instant;
use tracing::{info, warn};

use super::super::call;
use super::book::Book;
use super::form::{Standing, Told, Verdict, judge};
use super::role::{Form, Scope};
use super::{CLUSTER_ROLE, Keeper, Name, probe};

impl Keeper {
    /// The form that the role gets, found out where it is not known.
    pub(super) async fn form(&self, book: &mut Book) -> Result<Form> {
        if let (Some(form), false) = (&book.form, book.stale) {
            return Ok(form.clone());
        }
        if book.names.is_empty() && !book.granted {
            // The role of the agent before us is in force, and must not lose its names for a probe.
            return Ok(book.form.clone().unwrap_or(Form::Classic));
        }
        let form = self.look(book).await?;
        if book.form.as_ref() != Some(&form) {
            info!(constrained = form != Form::Classic, "impersonation");
        }
        (book.form, book.stale) = (Some(form.clone()), false);
        Ok(form)
    }

    /// Asks the API server. What the role says meanwhile is what it said before, and the probe's rules beside it: what is constrained is not
    /// let go for a question.
    async fn look(&self, book: &mut Book) -> Result<Form> {
        let roles: Api<ClusterRole> = Api::all(self.kube.clone());
        let role = call(&self.heart, roles.get_opt(CLUSTER_ROLE)).await;
        let standing = Standing::of(
            role.context("read ClusterRole linesman-line-subjects")?
                .as_ref(),
        );
        if let Standing::Constrained(found_on) = &standing {
            book.found_on.clone_from(found_on);
        }
        let known = matches!(book.form, Some(Form::Constrained(_)));
        let held = if known || matches!(standing, Standing::Constrained(_)) {
            Form::Constrained(self.scope(book).await?)
        } else {
            // Every API server takes them.
            Form::Classic
        };
        let names: BTreeSet<Name> = book.names.keys().cloned().collect();
        self.put(&names, &held, book.found_on.as_deref(), true)
            .await?;
        book.written = None;
        let wait = self.heart.wait(probe::LONGEST);
        let told = probe::is_constrained(&self.upstream).await;
        drop(wait);
        let told = match told {
            Ok(true) => Told::Takes,
            Ok(false) => Told::TakesNot,
            Err(error) => {
                warn!(
                    error = format!("{error:#}"),
                    "form of impersonation not found out"
                );
                Told::Nothing
            }
        };
        let version = call(&self.heart, self.kube.apiserver_version()).await;
        let version = version.ok().map(|info| info.git_version);
        book.asked = Some(Instant::now());
        let verdict = judge(&standing, told, version.as_deref());
        book.undecided = match verdict {
            Verdict::Undecided => book.undecided.saturating_add(1),
            Verdict::Constrained | Verdict::Classic => 0,
        };
        match verdict {
            Verdict::Constrained => {
                book.found_on = version.or_else(|| book.found_on.take());
                match held {
                    Form::Constrained(_) => Ok(held),
                    Form::Classic => Ok(Form::Constrained(self.scope(book).await?)),
                }
            }
            Verdict::Classic => {
                book.found_on = None;
                Ok(Form::Classic)
            }
            Verdict::Undecided => {
                if told == Told::TakesNot {
                    warn!(
                        "the API server refuses the constrained impersonation that it took before; it is kept. Where the API server was changed, delete ClusterRole {CLUSTER_ROLE}: it is made anew"
                    );
                }
                Ok(held)
            }
        }
    }

    /// What may be done as somebody, by the owner's policy.
    async fn scope(&self, book: &Book) -> Result<Scope> {
        if !self.read_only() {
            return Ok(Scope::Full);
        }
        let wait = self.heart.wait(probe::LONGEST);
        let kinds = probe::readable(&self.kube).await;
        drop(wait);
        match (kinds, &book.form) {
            (Ok(kinds), _) => Ok(Scope::Read(kinds)),
            (Err(error), Some(Form::Constrained(Scope::Read(kinds)))) => {
                warn!(
                    error = format!("{error:#}"),
                    "kinds of the cluster not read anew"
                );
                Ok(Scope::Read(kinds.clone()))
            }
            (Err(error), _) => Err(error),
        }
    }
}
