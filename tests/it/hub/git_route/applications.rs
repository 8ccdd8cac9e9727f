//! L51: with Argo CD the Applications that the hub wrote follow the cluster's way to Git, and those of people are named.

use linesman::hub::{git, gitroute};
use linesman::wire::api::EngineKind;
use linesman::wire::report::NO_ROUTE;
use serde_json::{Value, json};

use super::super::engine::{commit, import_of};
use super::super::support::{Agent, TestHub, token_of};
use super::{choose, report};

const APPS: &str = "clusters/eu1/apps.yaml";
const BASE: &str = "clusters/eu1/base.yaml";
const LINE: &str = "ssh://git@linesman-git.linesman.svc/catalog.git";
const BRANCH: &str = "linesman-git/eu1";

/// A cluster with Argo CD whose way is left to its agent.
async fn joined(hub: &TestHub) -> Agent {
    import_of(hub, EngineKind::Argocd, 3, "3.5.0").await;
    let new = json!({ "name": "eu1", "engine": "argocd" });
    let (code, answer) = hub.post("/v1/clusters", &new).await;
    assert_eq!(code, 201, "{answer}");
    let agent = Agent::new(1);
    assert_eq!(agent.join(hub, "eu1", &token_of(&answer)).await.0, 200);
    agent
}

/// The agent has proven a way, and the engine is set up for it.
async fn proven(hub: &TestHub, agent: &Agent, way: &str) {
    let facts = json!({ "facts": { "git.in-force": way } }).to_string();
    let path = "/v1/clusters/eu1/reports";
    assert_eq!(agent.call(hub, "POST", path, &facts).await.0, 200);
}

async fn head(hub: &TestHub, branch: &str) -> Option<String> {
    git::head(&hub.hub.catalog.repo, branch).await.unwrap()
}

/// What one look leaves behind: the catalog's head.
async fn looked(hub: &TestHub) -> Option<String> {
    gitroute::look(&hub.hub).await.unwrap();
    head(hub, git::BRANCH).await
}

async fn text(hub: &TestHub, file: &str) -> String {
    let files = git::files(&hub.hub.catalog.repo, git::BRANCH).await;
    String::from_utf8(files.unwrap().remove(file).unwrap()).unwrap()
}

/// The URL that the Application in a file names.
async fn named(hub: &TestHub, file: &str) -> String {
    let text = text(hub, file).await;
    let mut lines = text.lines().map(str::trim);
    let url = lines.find_map(|line| line.strip_prefix("repoURL: "));
    url.unwrap().to_owned()
}

async fn both(hub: &TestHub) -> [String; 2] {
    [named(hub, APPS).await, named(hub, BASE).await]
}

/// What the cluster is shown with.
async fn shown(hub: &TestHub) -> Value {
    let (code, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(code, 200, "{view}");
    view["otherWay"].clone()
}

/// The first line of a commit's message.
async fn subject(hub: &TestHub, commit: &str) -> String {
    let ids = [commit.to_owned()].into();
    let mut made = git::authors(&hub.hub.catalog.repo, ids).await.unwrap();
    made.remove(commit).unwrap().subject
}

/// In an adoption the agent finds that there is no route; later it is the way that it has proven that counts, whatever was chosen.
#[tokio::test]
async fn applications_follow_the_way_that_their_argo_cd_is_set_up_for() {
    let hub = TestHub::start("git-applications").await;
    let agent = joined(&hub).await;
    let direct = hub.hub.catalog.url.clone();
    let [direct, line] = [direct.as_str(), LINE].map(|url| [url; 2]);
    let added = head(&hub, git::BRANCH).await;
    assert_eq!(looked(&hub).await, added, "it begins as it has to be");
    assert_eq!(both(&hub).await, direct);

    report(&agent, &hub, NO_ROUTE).await;
    let turned = looked(&hub).await.unwrap();
    assert_eq!(both(&hub).await, line);
    let over_line = "Let cluster eu1 read the catalog over the line";
    assert_eq!(subject(&hub, &turned).await, over_line);
    assert_eq!(looked(&hub).await, Some(turned), "nothing is left to do");
    proven(&hub, &agent, "line").await;

    for (chosen, told, before, after) in [
        ("direct", "direct", line, direct),
        ("line", "line", direct, line),
        ("auto", "direct", line, direct),
    ] {
        assert_eq!(choose(&hub, chosen).await.0, 200);
        let unproven = head(&hub, git::BRANCH).await;
        assert_eq!(looked(&hub).await, unproven, "{chosen}: not proven yet");
        assert_eq!(both(&hub).await, before, "{chosen}");
        proven(&hub, &agent, told).await;
        assert_ne!(looked(&hub).await, unproven, "{chosen}");
        assert_eq!(both(&hub).await, after, "{chosen}");
        assert_eq!(shown(&hub).await, Value::Null, "{chosen}");
    }
    hub.stop().await;
}

#[tokio::test]
async fn applications_that_somebody_changed_stay_and_are_named() {
    let hub = TestHub::start("git-applications-theirs").await;
    let agent = joined(&hub).await;
    let direct = hub.hub.catalog.url.clone();
    let mine = text(&hub, APPS).await + "# of the platform team\n";
    commit(&hub, APPS, &mine).await;
    let own = "clusters/eu1/own.yaml";
    let mut other = text(&hub, BASE).await.replace("name: base", "name: own");
    commit(&hub, own, &other).await;
    // Where the copy of the agent is followed from, which is renewed by itself.
    commit(&hub, "clusters/eu1/linesman.yaml", &other).await;
    assert_eq!(shown(&hub).await, Value::Null);

    report(&agent, &hub, NO_ROUTE).await;
    looked(&hub).await;
    assert_eq!(named(&hub, BASE).await, LINE);
    assert_eq!(text(&hub, APPS).await, mine);
    assert_eq!(text(&hub, own).await, other);
    let told = json!({ "url": LINE, "files": [APPS, own] });
    assert_eq!(shown(&hub).await, told);

    other = other.replace(&direct, LINE);
    commit(&hub, own, &other).await;
    commit(&hub, APPS, &mine.replace(&direct, LINE)).await;
    assert_eq!(shown(&hub).await, Value::Null);

    assert_eq!(choose(&hub, "direct").await.0, 200);
    looked(&hub).await;
    assert_eq!(named(&hub, BASE).await, direct);
    let told = json!({ "url": direct, "files": [APPS, own] });
    assert_eq!(shown(&hub).await, told);
    hub.stop().await;
}

/// Two looks at once, such as of a replica that does not lead any more, beside a push: the push stays, whichever was first.
#[tokio::test]
async fn a_push_in_the_midst_of_a_switch_is_not_written_over() {
    let hub = TestHub::start("git-applications-push").await;
    let agent = joined(&hub).await;
    let mine = text(&hub, APPS).await + "# of the platform team\n";
    report(&agent, &hub, NO_ROUTE).await;
    let (one, two, ()) = tokio::join!(
        gitroute::look(&hub.hub),
        gitroute::look(&hub.hub),
        commit(&hub, APPS, &mine),
    );
    one.unwrap();
    two.unwrap();
    let turned = looked(&hub).await;
    assert_eq!(text(&hub, APPS).await, mine);
    assert_eq!(named(&hub, BASE).await, LINE);
    assert_eq!(looked(&hub).await, turned);
    hub.stop().await;
}

/// Its objects name no URL: the root's source alone has one, and that is the agent's.
#[tokio::test]
async fn nothing_is_committed_for_a_cluster_with_flux() {
    let hub = TestHub::start("git-applications-flux").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &token).await.0, 200);
    let before = head(&hub, git::BRANCH).await;
    report(&agent, &hub, NO_ROUTE).await;
    assert_eq!(looked(&hub).await, before);
    proven(&hub, &agent, "line").await;
    assert_eq!(looked(&hub).await, before);
    assert_eq!(shown(&hub).await, Value::Null);
    hub.stop().await;
}

/// The hub cannot sign: the change is proposed once, and withdrawn where it is not due any more.
#[tokio::test]
async fn with_signers_the_change_waits_for_a_signature() {
    let hub = TestHub::start("git-applications-signed").await;
    let agent = joined(&hub).await;
    let signer = json!({ "publicKey": include_str!("../signers/ada.asc"), "force": true });
    assert_eq!(hub.post("/v1/catalog/signers", &signer).await.0, 201);
    let before = head(&hub, git::BRANCH).await;
    report(&agent, &hub, NO_ROUTE).await;
    assert_eq!(looked(&hub).await, before);
    let proposed = head(&hub, BRANCH).await;
    assert!(proposed.is_some());
    let told = json!({ "url": LINE, "proposed": BRANCH });
    assert_eq!(shown(&hub).await, told);
    assert_eq!(looked(&hub).await, before);
    assert_eq!(head(&hub, BRANCH).await, proposed);

    assert_eq!(choose(&hub, "direct").await.0, 200);
    assert_eq!(looked(&hub).await, before);
    assert_eq!(
        head(&hub, BRANCH).await,
        None,
        "whoever merges it undoes the way back"
    );
    assert_eq!(shown(&hub).await, Value::Null);

    // It is merged.
    assert_eq!(choose(&hub, "line").await.0, 200);
    looked(&hub).await;
    let merged = head(&hub, BRANCH).await.unwrap();
    let repo = &hub.hub.catalog.repo;
    std::fs::write(repo.join("refs/heads/main"), format!("{merged}\n")).unwrap();
    assert_eq!(looked(&hub).await, Some(merged));
    assert_eq!(both(&hub).await, [LINE; 2]);
    assert_eq!(head(&hub, BRANCH).await, None);
    hub.stop().await;
}

/// A branch of somebody's stands where that of the first one's change would: that waits for the next look, and nobody else does.
#[tokio::test]
async fn what_cannot_be_written_for_one_cluster_keeps_no_other_waiting() {
    let hub = TestHub::start("git-applications-apart").await;
    let agent = joined(&hub).await;
    let new = json!({ "name": "ap1", "engine": "argocd" });
    assert_eq!(hub.post("/v1/clusters", &new).await.0, 201);
    // Before anything is due, which the hub's own look would write.
    let signer = json!({ "publicKey": include_str!("../signers/ada.asc"), "force": true });
    assert_eq!(hub.post("/v1/catalog/signers", &signer).await.0, 201);
    let theirs = hub.hub.catalog.repo.join("refs/heads/linesman-git/ap1");
    let at = head(&hub, git::BRANCH).await.unwrap();
    std::fs::create_dir_all(&theirs).unwrap();
    std::fs::write(theirs.join("x"), format!("{at}\n")).unwrap();
    let call = ("PUT", "/v1/clusters/ap1/git-route");
    let (any, line) = ([("if-match", "*")], json!({ "route": "line" }));
    assert_eq!(hub.call_as(&hub.admin, call, &any, &line).await.0, 200);
    report(&agent, &hub, NO_ROUTE).await;

    // The hub's own look may have come before, which says what is in the way.
    drop(gitroute::look(&hub.hub).await);
    assert!(head(&hub, BRANCH).await.is_some());
    gitroute::look(&hub.hub).await.unwrap();
    for branch in ["linesman-git/ap1", BRANCH] {
        assert!(head(&hub, branch).await.is_some(), "{branch}");
    }
    hub.stop().await;
}
