use super::*;
use crate::cli::cluster::wait;
use crate::wire::api::{ScopeOptions, ToldCondition, ToldHealRecord, Took};
use crate::wire::report::{HealResult, Phase, Scene, Status};

fn heal_of(id: &str) -> ToldHeal {
    ToldHeal {
        cluster: "eu1".parse().unwrap(),
        heal: ToldHealRecord {
            id: id.to_owned(),
            class: "ObjectMissing".to_owned(),
            number: 1,
            meaning: String::new(),
            object: "Deployment flux-system/source-controller".to_owned(),
            evidence: "deleted".to_owned(),
            writer: "kubectl".to_owned(),
            revision: String::new(),
            commit: String::new(),
            steps: Vec::new(),
            fault_at: None,
            detected_at: "2026-01-01T00:00:00.000Z".to_owned(),
            acted_at: None,
            restored_at: None,
            result: HealResult::Healed.into(),
            next: String::new(),
            scene: Scene::default(),
        },
        took: Took::default(),
        author: None,
        through_hub: None,
        story: Vec::new(),
    }
}

/// A row has no room for who wrote it, by which commit, and what was done.
#[test]
fn heals_are_followed_by_the_command_that_tells_the_whole_story() {
    let now = clock::parse_rfc3339("2026-01-01T00:01:00Z").unwrap();
    let text = heals_text(&[heal_of("0199-a-1111")], now);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[2].starts_with("1111"), "{text}");
    let below = ["", "the whole story of one: linesman heal show ID"];
    assert_eq!(lines[3..], below, "{text}");
    assert_eq!(heals_text(&[], now), "");
}

/// W27
#[test]
fn how_the_copy_of_the_agent_stands_is_said() {
    let copy_of = |kept, current, proposed: Option<&str>, trouble: Option<&str>| {
        copy(Some(&AgentCopyStanding {
            kept,
            current,
            proposed: proposed.map(str::to_owned),
            trouble: trouble.map(str::to_owned),
            applied: None,
        }))
    };
    let applied = |applied| {
        copy(Some(&AgentCopyStanding {
            kept: true,
            current: true,
            applied: Some(applied),
            ..AgentCopyStanding::default()
        }))
    };
    let waits = "in the catalog, old; the new one waits on branch a/b for a signature";
    for (said, expected) in [
        (copy(None), ""),
        (copy_of(false, false, None, None), "none in the catalog"),
        (copy_of(false, false, None, Some("not read")), "not read"),
        (
            copy_of(true, true, None, None),
            "in the catalog, as it has to be",
        ),
        (applied(true), "in the catalog, as it has to be"),
        (
            applied(false),
            "in the catalog, as it has to be; the engine has not applied it yet",
        ),
        (copy_of(true, false, Some("a/b"), None), waits),
        (
            copy_of(true, false, None, Some("no space")),
            "in the catalog, old; not renewed: no space",
        ),
        (
            copy_of(true, false, None, None),
            "in the catalog, old; the hub renews it",
        ),
    ] {
        assert_eq!(said, expected);
    }
}

/// L51: with Argo CD.
#[test]
fn applications_at_the_other_way_to_git_are_named_with_what_to_do() {
    let files = ["clusters/eu1/a.yaml", "clusters/eu1/b.yaml"];
    let other = |files: &[&str], proposed: Option<&str>| OtherWay {
        url: "ssh://git@linesman-git.linesman.svc/catalog.git".to_owned(),
        files: files.iter().map(|file| (*file).to_owned()).collect(),
        proposed: proposed.map(str::to_owned),
    };
    let theirs = "those of clusters/eu1/a.yaml, clusters/eu1/b.yaml name the catalog by the URL of the other way; put \
         ssh://git@linesman-git.linesman.svc/catalog.git there";
    let own = "the hub's own wait for a signature on branch linesman-git/eu1; merge it";
    let branch = Some("linesman-git/eu1");
    assert_eq!(elsewhere(&other(&files, None)), theirs);
    assert_eq!(elsewhere(&other(&[], branch)), own);
    let both = elsewhere(&other(&files, branch));
    assert_eq!(both, format!("{theirs}; {own}"));

    let now = clock::parse_rfc3339("2026-01-01T00:01:00Z").unwrap();
    let mut cluster = wait::tests::cluster(Phase::Healthy, &[], Vec::new());
    let row = |text: &str| text.lines().any(|line| line.starts_with("applications"));
    assert!(!row(&record(&cluster, None, now)));
    cluster.other_way = Some(other(&files, None));
    assert!(row(&record(&cluster, None, now)));
}

/// The hub has the new YAML's word as soon as its token is redeemed, and the agent of before may be the one that did.
#[test]
fn some_namespaces_are_covered_once_the_agent_of_that_yaml_runs() {
    let mut cluster = wait::tests::cluster(Phase::Healthy, &[], Vec::new());
    assert_eq!(covered(&cluster), "the whole cluster");
    cluster.scope = Some(ScopeOptions {
        namespaces: vec!["cart".to_owned(), "shop".to_owned()],
        strict: false,
    });
    let begins = "namespaces cart, shop, once the agent of that YAML runs";
    assert_eq!(covered(&cluster), begins);
    cluster.conditions.push(ToldCondition {
        kind: ConditionType::Uncovered.into(),
        status: Status::False.into(),
        reason: "Covered".to_owned(),
        message: String::new(),
        since: "2026-01-01T00:00:00Z".to_owned(),
    });
    assert_eq!(covered(&cluster), "namespaces cart, shop");
}

#[test]
fn whence_images_come_is_said_with_whose_word_it_is() {
    let view = |registry: &str, own| RegistryView {
        registry: registry.to_owned(),
        pull_secret: None,
        change: 0,
        own,
    };
    let private = |registry: &str| RegistryView {
        pull_secret: Some("regcred".to_owned()),
        ..view(registry, false)
    };
    for (view, expected) in [
        (view("", false), "from the registries that they name"),
        (
            view("", true),
            "from the registries that they name (said for this cluster)",
        ),
        (view("r.org", true), "from r.org (said for this cluster)"),
        (view("r.org", false), "from r.org (the hub's word for all)"),
        (
            private("r.org"),
            "from r.org, with Secret regcred (the hub's word for all)",
        ),
        (
            private(""),
            "from the registries that they name, with Secret regcred (the hub's word for all)",
        ),
    ] {
        assert_eq!(images(Some(&view)), expected);
    }
    assert_eq!(images(None), "");
}
