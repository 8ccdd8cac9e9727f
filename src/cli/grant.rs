//! `linesman grant`: who may reach which clusters' API as what.

mod check;
mod list;
mod revoke;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;

use super::connect::Connect;
use super::duration;
use super::output::{self, Column, Output, progress_line};
use crate::client::{self, Client};
use crate::wire::api::{ClusterChoice, GrantView, NewGrant};
use crate::wire::id::ClusterName;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Give a user or group access to clusters
    Add(Box<AddArgs>),
    /// List grants; without the role access, your own
    List(list::Args),
    /// Take a grant back
    Revoke(revoke::Args),
    /// Say whether a user reaches a cluster, and which grant says so or why none does
    Check(check::Args),
}

const ADD: &str = "\
Groups are Kubernetes groups: view, edit and admin are bound in every cluster, and those above its --access
get nothing there; others you bind there as linesman:GROUP. With --as and --as-group, kubectl's flags of the
same names are let through for these names: the request then goes as linesman:USER in linesman:GROUP, and
nothing of the grant's own groups goes with it. The record names both, who asked and as whom.

Examples:
  linesman grant add user:ada --cluster eu1 --group edit --for 2h --reason TICKET-1
  linesman grant add group:sre --all-clusters --group view --read-only
  linesman grant add group:shop --labels env=prod --group edit --namespace shop --namespace cart
  linesman grant add user:ada --cluster eu1 --group view --as bob --as-group edit --for 1h";

#[derive(Debug, clap::Args)]
#[command(after_help = ADD)]
pub(super) struct AddArgs {
    /// Whom: `user:NAME` or `group:NAME`
    subject: String,
    #[command(flatten)]
    clusters: ClusterArgs,
    /// Kubernetes group to act in: view, edit or admin, or one that the cluster's RBAC binds as linesman:GROUP; may be given several times
    #[arg(long = "group", value_name = "GROUP", required = true)]
    groups: Vec<String>,
    #[command(flatten)]
    acting: ActAsArgs,
    /// This namespace only; may be given several times
    #[arg(long = "namespace", short = 'n', value_name = "NAME")]
    namespaces: Vec<String>,
    /// Reading only: no exec, no port-forward, no change
    #[arg(long)]
    read_only: bool,
    /// How long it lasts, such as 2h; without it, until it is revoked
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    lasts: Option<Duration>,
    /// Why, such as a ticket's number
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// Whom `kubectl --as` and `--as-group` name.
#[derive(Debug, clap::Args)]
struct ActAsArgs {
    /// User to act as, as in kubectl --as; may be given several times
    #[arg(long = "as", value_name = "USER")]
    as_users: Vec<String>,
    /// Group to act in, as in kubectl --as-group; may be given several times
    #[arg(long = "as-group", value_name = "GROUP", requires = "as_users")]
    as_groups: Vec<String>,
}

impl ActAsArgs {
    /// `user:NAME` and `group:NAME`.
    fn names(&self) -> BTreeSet<String> {
        let users = self.as_users.iter().map(|name| format!("user:{name}"));
        let groups = self.as_groups.iter().map(|name| format!("group:{name}"));
        users.chain(groups).collect()
    }
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct ClusterArgs {
    /// This cluster; may be given several times
    #[arg(long = "cluster", value_name = "NAME")]
    names: Vec<ClusterName>,
    /// Clusters whose labels match, as for kubectl -l
    #[arg(long, value_name = "SELECTOR")]
    labels: Option<String>,
    /// Every cluster, those to come too
    #[arg(long)]
    all_clusters: bool,
}

impl ClusterArgs {
    fn choice(self) -> ClusterChoice {
        match self.labels {
            Some(selector) => ClusterChoice::Labels(selector),
            None if self.all_clusters => ClusterChoice::All,
            None => ClusterChoice::Names(self.names.into_iter().collect()),
        }
    }
}

const COLUMNS: [Column<GrantView>; 10] = [
    Column::new("ID", |g, _| g.id.clone()),
    Column::new("SUBJECT", |g, _| g.subject.clone()),
    Column::new("CLUSTERS", |g, _| clusters(&g.clusters)),
    Column::new("GROUPS", |g, _| joined(&g.groups)),
    Column::new("MAY ACT AS", |g, _| joined(&g.act_as)),
    Column::new("LIMITS", |g, _| limits(g)),
    Column::new("UNTIL", |g, _| until(g)),
    Column::new("REASON", |g, _| g.reason.clone()),
    Column::wide("BY", |g, _| g.created_by.clone()),
    Column::wide("SINCE", |g, _| g.created_at.clone()),
];

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Add(args) => add(*args).await,
        Verb::List(args) => list::run(args).await,
        Verb::Revoke(args) => revoke::run(args).await,
        Verb::Check(args) => check::run(args).await,
    }
}

async fn add(args: AddArgs) -> Result<()> {
    let client = args.connect.client().await?;
    let namespaces: BTreeSet<String> = args.namespaces.into_iter().collect();
    let new = NewGrant {
        subject: args.subject,
        clusters: args.clusters.choice(),
        groups: args.groups.into_iter().collect(),
        act_as: args.acting.names(),
        namespaces: (!namespaces.is_empty()).then_some(namespaces),
        read_only: args.read_only,
        lasts: args.lasts.map(|length| length.as_secs()),
        reason: args.reason,
    };
    let grant = client.add_grant(&new).await?;
    let groups = grant.groups.iter().filter_map(|group| unbound(group));
    for warning in in_vain(&client, &grant).await.into_iter().chain(groups) {
        progress_line(&format!("warning: {warning}"));
    }
    let format = args.output.output;
    output::list(format, &[grant], &COLUMNS, |g| g.id.clone(), "")
}

/// Groups that every adoption YAML binds, weakest first and up to its `--access`.
const BOUND: [&str; 3] = ["view", "edit", "admin"];

/// What is to be said of a group that a cluster's owner has to bind: a slip of the pen, or on purpose.
fn unbound(group: &str) -> Option<String> {
    if BOUND.contains(&group) {
        return None;
    }
    let meant = if group == "cluster-admin" {
        "; did you mean admin?"
    } else {
        ""
    };
    Some(format!(
        "no adoption YAML binds linesman:{group}: in it one can do only what the cluster's own RBAC gives that group (bound are {}){meant}",
        BOUND.join(", ")
    ))
}

/// What is to be said of a group above the most that this cluster's YAML binds; `access` is absent where the hub is of before.
fn above(group: &str, cluster: &ClusterName, access: Option<&str>) -> Option<String> {
    let place = |group: &str| BOUND.iter().position(|bound| *bound == group);
    let access = access?;
    let bound = match access {
        "off" => 0,
        most => place(most)? + 1,
    };
    if place(group)? < bound {
        return None;
    }
    let (upto, instead) = if bound == 0 {
        ("no groups".to_owned(), String::new())
    } else {
        (
            format!("groups up to {access}"),
            format!("grant {access}, or "),
        )
    };
    Some(format!(
        "the adoption YAML of cluster {cluster} binds {upto}: in {group} one can do only what the cluster's own RBAC gives \
         linesman:{group}; {instead}give more by new YAML (linesman cluster readopt {cluster}, --access)"
    ))
}

/// What of the grant comes to nothing, as far as the caller may see. What the hub does not have is a slip of the pen, or yet to come.
async fn in_vain(client: &Client, grant: &GrantView) -> Vec<String> {
    let mut warnings = Vec::new();
    let missing = |e: &client::Error| e.status().is_some_and(|s| s == http::StatusCode::NOT_FOUND);
    if let ClusterChoice::Names(names) = &grant.clusters {
        for name in names {
            match client.cluster(name).await {
                Ok(cluster) => {
                    let access = cluster.access.as_deref();
                    let groups = grant.groups.iter();
                    warnings.extend(groups.filter_map(|group| above(group, name, access)));
                }
                Err(error) if missing(&error) => warnings.push(format!(
                    "the hub has no cluster {name}; the grant counts when there is one of that name"
                )),
                Err(_) => {}
            }
        }
    }
    let Some(user) = grant.subject.strip_prefix("user:") else {
        return warnings;
    };
    // Whom an identity provider knows, the hub knows after the first login.
    let local = client.info().await.is_ok_and(|info| !info.oidc);
    if local && client.user(user).await.is_err_and(|e| missing(&e)) {
        warnings.push(format!(
            "the hub has no user {user}; add one: linesman user add {user}"
        ));
    }
    warnings
}

fn clusters(choice: &ClusterChoice) -> String {
    match choice {
        ClusterChoice::All => "all".to_owned(),
        ClusterChoice::Names(names) => joined(names),
        ClusterChoice::Labels(selector) => format!("with {selector}"),
    }
}

fn limits(grant: &GrantView) -> String {
    let mut limits = Vec::new();
    if grant.read_only {
        limits.push("read-only".to_owned());
    }
    if let Some(namespaces) = &grant.namespaces {
        limits.push(format!("in {}", joined(namespaces)));
    }
    limits.join(", ")
}

fn until(grant: &GrantView) -> String {
    if let Some(at) = &grant.revoked_at {
        let by = grant.revoked_by.as_ref();
        let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
        return format!("revoked at {at}{by}");
    }
    match &grant.expires_at {
        None => "no end".to_owned(),
        Some(at) if grant.over => format!("over since {at}"),
        Some(at) => at.clone(),
    }
}

fn joined<T: ToString>(items: &BTreeSet<T>) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join(",")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::cli) fn grant(subject: &str) -> GrantView {
        GrantView {
            id: "g".to_owned(),
            subject: subject.to_owned(),
            clusters: ClusterChoice::All,
            groups: BTreeSet::new(),
            act_as: BTreeSet::new(),
            namespaces: None,
            read_only: false,
            expires_at: None,
            revoked_at: None,
            revoked_by: None,
            over: false,
            reason: String::new(),
            created_by: "admin".to_owned(),
            created_at: "2026-01-01T00:00:00Z".to_owned(),
            rev: 1,
        }
    }

    #[test]
    fn a_grant_without_an_end_is_not_called_revoked() {
        let mut grant = grant("user:ada");
        assert_eq!(until(&grant), "no end");
        grant.expires_at = Some("2026-01-02T00:00:00Z".to_owned());
        assert_eq!(until(&grant), "2026-01-02T00:00:00Z");
        grant.over = true;
        assert_eq!(until(&grant), "over since 2026-01-02T00:00:00Z");
        grant.revoked_at = Some("2026-01-01T12:00:00Z".to_owned());
        assert_eq!(until(&grant), "revoked at 2026-01-01T12:00:00Z");
        grant.revoked_by = Some("bob".to_owned());
        assert_eq!(until(&grant), "revoked at 2026-01-01T12:00:00Z by bob");
    }

    /// Bound to nothing, it is no lesser admin.
    #[test]
    fn a_group_above_what_the_clusters_yaml_binds_is_told() {
        let eu1: ClusterName = "eu1".parse().unwrap();
        let said = |access| BOUND.map(|group| above(group, &eu1, access));
        let edit = "the adoption YAML of cluster eu1 binds groups up to edit: in admin one can do only what the cluster's own RBAC \
                    gives linesman:admin; grant edit, or give more by new YAML (linesman cluster readopt eu1, --access)";
        assert_eq!(said(Some("edit")), [None, None, Some(edit.to_owned())]);
        let off = |group: &str| {
            format!(
                "the adoption YAML of cluster eu1 binds no groups: in {group} one can do only what the cluster's own RBAC gives \
                 linesman:{group}; give more by new YAML (linesman cluster readopt eu1, --access)"
            )
        };
        assert_eq!(said(Some("off")), BOUND.map(|group| Some(off(group))));
        // The most there is, a hub of before, and a word of a later one.
        for access in [Some("admin"), None, Some("most")] {
            assert_eq!(said(access), [None, None, None], "{access:?}");
        }
        assert_eq!(above("sre", &eu1, Some("view")), None);
    }

    #[test]
    fn a_group_that_no_adoption_binds_is_told() {
        for bound in BOUND {
            assert_eq!(unbound(bound), None);
        }
        assert_eq!(
            unbound("veiw").unwrap(),
            "no adoption YAML binds linesman:veiw: in it one can do only what the cluster's own RBAC gives that group (bound are view, edit, admin)"
        );
        assert_eq!(
            unbound("cluster-admin").unwrap(),
            "no adoption YAML binds linesman:cluster-admin: in it one can do only what the cluster's own RBAC gives that group (bound are view, edit, admin); did you mean admin?"
        );
    }
}
