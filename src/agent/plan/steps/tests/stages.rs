//! The stages of an install: what each object stands on.

use super::*;

fn created(cluster: &Cluster, id: &ObjectId) -> bool {
    let taken = taken(cluster, Class::ObjectMissing, id, "is missing");
    assert!(taken.is_empty() || taken == [(Action::Create, id.clone())]);
    !taken.is_empty()
}

/// The stages of an install.
#[test]
fn nothing_is_made_before_what_it_stands_on() {
    for engine in [EngineKind::Flux, EngineKind::Argocd] {
        let install = Cluster::working_of(engine).install;
        let workload = install.workloads().next().unwrap().clone();
        let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
        let before_pods = install.wanted.keys().filter(|id| {
            install.traits.before_pods.contains(&id.kind)
                || matches!(
                    id.kind,
                    Kind::ServiceAccount
                        | Kind::ClusterRole
                        | Kind::ClusterRoleBinding
                        | Kind::CustomResourceDefinition
                )
        });
        let mut before: Vec<ObjectId> = before_pods.cloned().collect();
        before.extend([namespace.clone(), install.rights.clone()]);
        assert!(before.len() > 8, "{before:?}");
        for missing in before {
            let mut cluster = Cluster::working_of(engine);
            cluster.objects.remove(&missing);
            assert!(!created(&cluster, &workload), "{missing}");
        }
        let service = install.wanted.keys().find(|id| id.kind == Kind::Service);
        let service = service.unwrap().clone();
        let mut cluster = Cluster::working_of(engine);
        cluster.objects.remove(&service);
        assert!(created(&cluster, &workload), "{service}");
        cluster.objects.remove(&install.rights);
        assert!(!created(&cluster, &service), "without the agent's rights");
        assert!(created(&cluster, &install.rights), "which are made first");
        cluster.objects.get_mut(&namespace).unwrap().deleting = Some(cluster.now);
        assert!(!created(&cluster, &install.rights), "in a dying namespace");
        let role = install
            .wanted
            .keys()
            .find(|id| id.kind == Kind::ClusterRole);
        assert!(created(&cluster, role.unwrap()), "which is in no namespace");
    }
}

#[test]
fn a_root_is_made_when_its_crd_serves_and_its_key_and_project_are_there() {
    for engine in [EngineKind::Flux, EngineKind::Argocd] {
        let install = Cluster::working_of(engine).install;
        let root = install.sync.clone();
        let (group, _, plural) = root.kind.resource();
        let crd = crd(&format!("{plural}.{group}"));
        let project = install.wanted.keys().find(|id| id.kind == Kind::AppProject);
        assert!(created(&Cluster::working_of(engine), &root));
        for missing in [Some(&install.secret), Some(&crd), project]
            .into_iter()
            .flatten()
        {
            let mut cluster = Cluster::working_of(engine);
            cluster.objects.remove(missing);
            assert!(!created(&cluster, &root), "{missing}");
        }
        let mut cluster = Cluster::working_of(engine);
        cluster.objects.get_mut(&crd).unwrap().fields["status"] = json!({});
        assert!(!created(&cluster, &root), "not established");
        if let Some(project) = project {
            let mut cluster = Cluster::working_of(engine);
            cluster.objects.remove(&root);
            assert!(created(&cluster, project), "the project before its root");
        }
    }
}

/// An object that the API server does not tell of keeps nothing from being made.
#[test]
fn what_cannot_be_known_is_not_waited_for() {
    let mut cluster = Cluster::working();
    let account = ObjectId::new(Kind::ServiceAccount, "flux-system", "source-controller");
    cluster.objects.remove(&account);
    let mut observed = cluster.observed();
    observed.scopes.remove(&Kind::ServiceAccount);
    let id = deployment("source-controller");
    let ready = |observed: &Observed| ready_for(cluster.now, &cluster.install, observed, &id);
    assert!(ready(&observed) && !ready(&cluster.observed()));
}
