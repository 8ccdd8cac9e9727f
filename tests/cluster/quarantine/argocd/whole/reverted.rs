//! A commit that breaks the repo-server, which the catalog brings below the root, and one that takes it out of the catalog.

use serde_json::json;

use super::super::SERVER;
use super::super::catalog::Catalog;
use crate::healing::{LIMIT, none_is_open, settle};
use crate::quarantine::lifted::{Former, WHEN};
use crate::support::api::deployment;
use crate::support::world::{self, ARGOCD};
use crate::support::{seconds, until};

/// W5, W17
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_a_reverted_commit_brought_is_the_agents_again_by_order() {
    let mut world = world::adopted_argocd();
    settle(&world);
    let server = deployment(ARGOCD, SERVER);
    let former = Former::of(&world, &server);
    let parts = [("Deployment", Some(SERVER))];
    let catalog = Catalog::managing(&mut world, &parts, &[&server]);
    for (when, later) in WHEN {
        reverted(&catalog, &former, when, later);
    }
    former.made_again(catalog.world);
    catalog.give_up();
    settle(&world);
}

fn reverted(catalog: &Catalog, former: &Former, when: &str, later: bool) {
    let (world, server) = (&*catalog.world, deployment(ARGOCD, SERVER));
    let good = format!("reverted-{later}");
    catalog.broken_and_held(&server, &format!("bad-{later}"));
    catalog.told("True");
    let head = if later {
        let head = catalog.push("", &good);
        until("Argo CD has the revert", seconds(LIMIT), || {
            former.stands(world);
            catalog.delivered() == json!(good)
        });
        world.function(seconds(LIMIT));
        assert!(catalog.is_held(&server), "nobody said so");
        head
    } else {
        catalog.commit("", &good)
    };
    former.given_back(world, when);
    until("all is as Git says", seconds(LIMIT), || {
        former.stands(world);
        catalog.is_at(&head) && catalog.delivered() == json!(good) && catalog.is_unshielded()
    });
    catalog.told("False");
    until("no heal is open", seconds(LIMIT), || none_is_open(world));
}
