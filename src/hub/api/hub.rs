//! The hub itself: who it is, who the caller is, its own checks.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use time::{Duration, OffsetDateTime};

use super::Caller;
use super::problem::Problem;
use crate::clock;
use crate::hub::auth::Role;
use crate::hub::notify::tokens::due;
use crate::hub::oidc::Provider;
use crate::hub::replica::agree;
use crate::hub::serve::first_admin;
use crate::hub::store::{Store, StoreError};
use crate::hub::tls::TlsSource;
use crate::hub::tried::Try;
use crate::hub::{Hub, audit, git, image, notify};
use crate::wire::PROTOCOL;
use crate::wire::api::{Check, HubInfo, WhoAmI};

/// A certificate of files that ends sooner than this is worth a warning.
const CERTIFICATE_MARGIN: Duration = Duration::days(14);
/// The same of the hub's own CA: people have to log in again with the one after it, and agents have to hear of that.
const CA_MARGIN: Duration = Duration::days(180);

/// A sink that is further behind needs a look.
const MAX_BEHIND: i64 = 1_000;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/hub", get(info))
        .route("/v1/whoami", get(whoami))
        .route("/v1/hub/checks", get(checks))
        .route("/v1/hub/notices/test", post(test_notice))
}

/// What each receiver of notices says to one that is a test.
async fn test_notice(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
) -> Result<Json<Vec<Check>>, Problem> {
    caller.require(&hub, Role::Admin, "notice.test").await?;
    let sinks = hub.config.notify.sinks.iter();
    let sinks: Vec<&str> = sinks.map(notify::Sink::name).collect();
    let target = format!("to {}", sinks.join(", "));
    caller.record(&hub, "notice.test", None, &target).await?;
    Ok(Json(notify::test::send(&hub, &caller.user.name).await))
}

async fn info(State(hub): State<Arc<Hub>>) -> Json<HubInfo> {
    let said = hub.says();
    Json(HubInfo {
        hub_id: hub.id.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL,
        time: clock::now().unix_timestamp(),
        trust: Some(said.trust.clone()),
        trust_chain: said.chain.clone(),
        oidc: hub.oidc.is_some(),
    })
}

async fn whoami(State(hub): State<Arc<Hub>>, caller: Caller) -> Json<WhoAmI> {
    let user = caller.user;
    Json(WhoAmI {
        roles: user.roles.iter().map(|r| r.as_str().to_owned()).collect(),
        user: user.name,
        groups: user.groups,
        groups_lapsed: user.lapsed.map(|why| why.to_string()),
        scopes: user.scopes.iter().map(|s| s.as_str().to_owned()).collect(),
        expires_at: user.expires_at.map(clock::rfc3339),
        vouched_until: user.vouched_until.map(clock::rfc3339),
        hub: hub.config.url.clone(),
    })
}

async fn checks(State(hub): State<Arc<Hub>>, caller: Caller) -> Result<Json<Vec<Check>>, Problem> {
    caller.require(&hub, Role::Viewer, "hub.check").await?;
    let mut checks = vec![
        database(&hub).await,
        data(&hub),
        catalog(&hub).await,
        certificate(&hub),
        bundle(&hub).await,
        sinks(&hub).await,
        notices(&hub),
        retention(&hub).await,
        admins(&hub).await,
        tokens(&hub, &caller).await,
        agent_image(&hub),
        Check {
            name: "clock".to_owned(),
            ok: true,
            found: clock::rfc3339(clock::now()),
            fix: String::new(),
        },
    ];
    checks.extend(
        hub.tls
            .ca_not_after()
            .map(|end| authority(end, clock::now())),
    );
    if hub.replica.is_some() {
        checks.push(replicas(&hub).await);
    }
    if let Some(provider) = &hub.oidc {
        checks.push(identity(provider).await);
    }
    Ok(Json(checks))
}

async fn identity(provider: &Provider) -> Check {
    let found = match provider.check().await {
        Ok(found) => Ok(format!(
            "{} answers, its keys are usable; asked for: {}",
            found.issuer,
            provider
                .config
                .scopes
                .as_ref()
                .unwrap_or(&found.scopes)
                .join(" ")
        )),
        Err(error) => Err(crate::hub::chain_of(&error)),
    };
    let fix = "compare --oidc-issuer with what the provider's discovery document says, and see that the hub reaches it";
    check("identity provider", found, fix)
}

fn check(name: &str, found: Result<String, String>, fix: &str) -> Check {
    let ok = found.is_ok();
    Check {
        name: name.to_owned(),
        ok,
        found: found.unwrap_or_else(|error| error),
        fix: if ok { String::new() } else { fix.to_owned() },
    }
}

async fn database(hub: &Hub) -> Check {
    let found = hub
        .store
        .check()
        .await
        .map_err(|e| crate::hub::chain_of(&e));
    let fix = match hub.store {
        Store::Sqlite(_) => {
            "look at the hub's log, and at the room on the disk of its data directory"
        }
        Store::Postgres(_) => {
            "look at the hub's log, and at the database's server: whether it takes writes, and has connections left"
        }
    };
    check(
        "database",
        found.map(|()| "reads and writes".to_owned()),
        fix,
    )
}

fn data(hub: &Hub) -> Check {
    let gone = hub.data_gone.borrow().clone();
    let found = gone.map_or_else(|| Ok("is there".to_owned()), Err);
    let fix =
        "see that the volume of --data is mounted where the hub runs, then start the hub anew";
    check("data directory", found, fix)
}

async fn catalog(hub: &Hub) -> Check {
    let found = match git::head(&hub.catalog.repo, &hub.catalog.branch).await {
        Ok(Some(head)) => Ok(format!("{} is at {head}", hub.catalog.branch)),
        Ok(None) => Err(format!("the catalog has no branch {}", hub.catalog.branch)),
        Err(error) => Err(format!("{error:#}")),
    };
    check(
        "catalog",
        found,
        "restore the catalog's repository from the backup or from a clone",
    )
}

fn certificate(hub: &Hub) -> Check {
    let (end, now) = (hub.tls.not_after(), clock::now());
    let mut text = format!("good until {}", clock::rfc3339(end));
    // Not a failure: a balancer before the hub may show another one.
    if let Some(doubt) = hub.tls.doubt(&hub.config.url, now) {
        text = format!("{text}, but {doubt}");
    }
    let found = if end - now > CERTIFICATE_MARGIN {
        Ok(text)
    } else {
        Err(text)
    };
    check("certificate", found, renewal(&hub.config.tls))
}

/// Whether replicas have flags that fit one another.
async fn replicas(hub: &Hub) -> Check {
    let found = hub.store.reaches().await;
    let found = found.map_err(|error| crate::hub::chain_of(&error));
    let found = found.and_then(|all| match agree::discord(&all) {
        None => Ok(format!("{} live", all.len())),
        Some(found) => Err(found),
    });
    check("replicas", found, agree::NEXT)
}

/// The hub's own CA, which nobody replaces but its operator.
fn authority(end: OffsetDateTime, now: OffsetDateTime) -> Check {
    let text = format!("good until {}", clock::rfc3339(end));
    let found = if end - now > CA_MARGIN {
        Ok(text)
    } else {
        Err(text)
    };
    let fix = "run: linesman hub rotate ca --in 7d, on the machine of the hub; people log in again before it serves";
    check("CA", found, fix)
}

/// How one that ends soon is replaced.
fn renewal(source: &TlsSource) -> &'static str {
    match source {
        TlsSource::Own { .. } => {
            "the hub makes another one by itself a month before the end: its log says why it could not ('follow the hub's key, CA \
             and certificate')"
        }
        TlsSource::Files { .. } => {
            "put a renewed certificate in place of the files of --tls-cert and --tls-key; the hub reads it by itself"
        }
    }
}

/// Where there is no engine.
const IMPORT: &str = "run: linesman engine import flux VERSION, or argocd VERSION";

async fn bundle(hub: &Hub) -> Check {
    let found = match hub.store.bundles().await {
        Ok(bundles) if bundles.is_empty() => Err("no engine bundle is imported".to_owned()),
        Ok(bundles) => Ok(format!("{} imported", bundles.len())),
        Err(error) => Err(crate::hub::chain_of(&error)),
    };
    check("bundles", found, IMPORT)
}

/// No failure where there is no registry: nodes may have the image already, as in a lab.
fn agent_image(hub: &Hub) -> Check {
    let image = &hub.config.agent_image;
    let found = image::without_registry(image).map(|warning| {
        format!(
            "{warning}; start the hub with --agent-image, or name one for a cluster with --image"
        )
    });
    check(
        "agent image",
        Ok(found.unwrap_or_else(|| image.clone())),
        "",
    )
}

/// Whether an admin can still get in.
async fn admins(hub: &Hub) -> Check {
    let found = first_admin::outlook(&hub.store, clock::now()).await;
    let found = found.unwrap_or_else(|error| Err(crate::hub::chain_of(&error)));
    check("admin tokens", found, first_admin::NEXT)
}

/// Programs' tokens that are about to end: of all users to an admin, to everybody else their own.
async fn tokens(hub: &Hub, caller: &Caller) -> Check {
    let now = clock::now();
    let own = (!caller.user.is(Role::Admin)).then_some(caller.user.id.as_str());
    let found = hub.store.api_tokens(own, now).await;
    let found = found.map_err(|error| crate::hub::chain_of(&error));
    let found = found.and_then(|tokens| due::outlook(&tokens, now));
    check("programs' tokens", found, due::NEXT)
}

/// Whether the audit goes as far back as it is to.
async fn retention(hub: &Hub) -> Check {
    let found = audit::retain::outlook(&hub.store, hub.config.audit.retention, clock::now()).await;
    let found = found.unwrap_or_else(|error| Err(crate::hub::chain_of(&error)));
    check("audit retention", found, audit::retain::NEXT)
}

/// Whether what people are to be told arrives, as far as this replica has tried.
fn notices(hub: &Hub) -> Check {
    let sinks = hub.config.notify.sinks.iter().map(notify::Sink::name);
    let tries = sinks.map(|sink| (sink, hub.tried.last(sink)));
    let fix = "look at the receiver and at the hub's --notify-… flags, then: linesman notice test";
    check("notices", outlook(&tries.collect::<Vec<_>>()), fix)
}

/// What is said of receivers by how the last try of each ended.
fn outlook(tries: &[(&str, Option<Try>)]) -> Result<String, String> {
    let mut failed = false;
    let told = tries.iter().map(|(sink, last)| match last {
        None => format!("nothing was sent to {sink} yet: 'linesman notice test' does"),
        Some(last) => match last.fault() {
            Some(fault) => {
                failed = true;
                format!("{sink} {fault}")
            }
            None => format!("{sink} took the last at {}", clock::rfc3339(last.at())),
        },
    });
    let told: Vec<String> = told.collect();
    let told = told.join("; ");
    match (tries, failed) {
        ([], _) => Ok("no receiver is set".to_owned()),
        (_, false) => Ok(told),
        (_, true) => Err(told),
    }
}

/// How many records the audit's sinks have yet to take, and whether they take any.
async fn sinks(hub: &Hub) -> Check {
    let mut found = Vec::new();
    let mut late = false;
    for sink in &hub.config.audit.sinks {
        let name = sink.name();
        match behind(hub, &name).await {
            Ok(behind) => {
                let fault = hub.tried.last(&name).and_then(|last| last.fault());
                late |= behind > MAX_BEHIND || fault.is_some();
                let fault = fault.map_or_else(String::new, |fault| format!(", and {fault}"));
                found.push(format!("{name} is {behind} records behind{fault}"));
            }
            Err(error) => {
                late = true;
                found.push(crate::hub::chain_of(&error));
            }
        }
    }
    let text = if found.is_empty() {
        "none is set".to_owned()
    } else {
        found.join("; ")
    };
    check(
        "audit sinks",
        if late { Err(text) } else { Ok(text) },
        "look at the receiver, and at the hub's log for why it does not take records",
    )
}

/// How many records this sink has yet to take, whichever replica made them.
async fn behind(hub: &Hub, sink: &str) -> Result<i64, StoreError> {
    let position = hub.store.audit_position(sink).await?.unwrap_or(0);
    let last = hub.store.audit_head().await?.map_or(0, |row| row.seq);
    Ok(last.saturating_sub(position).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::tried::Tried;

    /// A wrong address was found at the first outage.
    #[test]
    fn a_receiver_whose_last_try_failed_is_told_with_the_reason() {
        let tried = Tried::default();
        let last = |sink| (sink, tried.last(sink));
        assert_eq!(outlook(&[]), Ok("no receiver is set".to_owned()));
        let unsent = "nothing was sent to slack yet: 'linesman notice test' does";
        assert_eq!(outlook(&[last("slack")]), Ok(unsent.to_owned()));
        let now = OffsetDateTime::UNIX_EPOCH;
        tried.went("webhook", now, Ok(()));
        let took = "webhook took the last at 1970-01-01T00:00:00.000Z";
        assert_eq!(outlook(&[last("webhook")]), Ok(took.to_owned()));
        tried.went("slack", now, Err("it answered 404".to_owned()));
        let failed = "slack has failed since 1970-01-01T00:00:00.000Z: it answered 404";
        assert_eq!(
            outlook(&[last("webhook"), last("slack")]),
            Err(format!("{took}; {failed}"))
        );
    }

    #[test]
    fn an_own_ca_that_ends_within_half_a_year_is_to_be_replaced() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let told = [181, 180].map(|days| {
            let Check { ok, found, fix, .. } = authority(now + Duration::days(days), now);
            (ok, found, fix.contains("rotate ca"))
        });
        let found = |day: &str| format!("good until {day}T00:00:00.000Z");
        let expected = [
            (true, found("1970-07-01"), false),
            (false, found("1970-06-30"), true),
        ];
        assert_eq!(told, expected);
    }

    /// The hub's own certificate is in no files that anybody was to renew.
    #[test]
    fn each_kind_of_certificate_is_renewed_in_its_way() {
        let own = TlsSource::Own { names: Vec::new() };
        let files = TlsSource::Files {
            cert: "a.crt".into(),
            key: "a.key".into(),
            ca: None,
        };
        let told = [&own, &files].map(|source| {
            let fix = renewal(source);
            (
                fix.contains("by itself a month before"),
                fix.contains("--tls-cert"),
            )
        });
        assert_eq!(told, [(true, false), (false, true)]);
    }
}
