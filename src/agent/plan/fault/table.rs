//! One row a class: all that is fixed about it. `docs/faults.md` is printed from here.

use time::Duration;

use super::Budget;

/// What is fixed about one class.
#[derive(Debug)]
pub struct About {
    /// As in `docs/faults.md`; 0 = a class without a number.
    pub number: u8,
    pub name: &'static str,
    pub budget: Budget,
    /// How long it has to be there before it counts.
    pub debounce: Duration,
    pub seen: &'static str,
    pub evidence: &'static str,
    pub does: &'static str,
    /// What a person does; empty = nothing.
    pub advice: &'static str,
}

macro_rules! faults {
    ($($name:ident: $number:literal, $budget:expr, $seconds:literal s;
        seen $seen:literal; evidence $evidence:literal; does $does:literal; advice $advice:literal;)*) => {
        /// What can be wrong, and with it what may be done. A class without a safe step is reported, never hammered.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Class {
            $($name,)*
        }

        impl Class {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What is fixed about it, for people and for the budget.
            pub fn about(self) -> &'static About {
                match self {
                    $(Self::$name => const {
                        &About {
                            number: $number,
                            name: stringify!($name),
                            budget: $budget,
                            debounce: Duration::seconds($seconds),
                            seen: $seen,
                            evidence: $evidence,
                            does: $does,
                            advice: $advice,
                        }
                    },)*
                }
            }
        }
    };
}

faults! {
    ObjectMissing: 1, Budget::Spaced, 0 s;
        seen "a workload, Service, role, binding, policy, quota or ConfigMap of the install is gone";
        evidence "the object; the API server was heard of that kind within 90 s";
        does "creates it";
        advice "";
    ServiceAccountMissing: 2, Budget::Spaced, 0 s;
        seen "a controller's ServiceAccount is gone, or is newer than the Pods that hold its tokens";
        evidence "the account, and when it was made; the Pods that are older";
        does "creates it; deletes the Pods whose tokens it made void";
        advice "";
    ScaledToZero: 3, Budget::PerHour(5), 30 s;
        seen "a controller has `replicas: 0`";
        evidence "the field, what is there and what last known good has; who wrote it and when, where the object says so: `kubectl scale` leaves no mark in it. Whose request it was that came through the hub, `heal show` tells who may read the audit";
        does "applies the fields as last known good";
        advice "";
    BadImage: 4, Budget::PerHour(5), 0 s;
        seen "a controller's image is another than last known good";
        evidence "the field, what is there and what last known good has; who wrote it and when";
        does "applies the fields as last known good";
        advice "";
    RegistryDown: 5, Budget::Report, 20 s;
        seen "ErrImagePull, ImagePullBackOff or InvalidImageName with the image that is last known good";
        evidence "the kubelet's message, the image";
        does "reports: another image would be a wrong one";
        advice "make the image's registry reachable from the cluster's nodes";
    CrashLoop: 6, Budget::Report, 20 s;
        seen "CrashLoopBackOff, or a Pod that failed three times within 10 min and came up in between, although the fields are last known good";
        evidence "the last exit code and reason, the number of restarts; the last 40 lines of the container's log";
        does "reports: the kubelet restarts it already. Fields that differ are a fault of their own, and are mended";
        advice "read the controller's log; its objects are as last known good";
    ConfigRefMissing: 7, Budget::Report, 20 s;
        seen "CreateContainerConfigError or CreateContainerError";
        evidence "the kubelet's message, which names what is missing";
        does "reports; what belongs to the install is created as `ObjectMissing`, and the Pod then starts by itself";
        advice "create the object that the container refers to";
    OomKilled: 8, Budget::Report, 20 s;
        seen "CrashLoopBackOff after the kernel ended the container for its memory, or a Pod that it ended so three times within 15 min";
        evidence "the last exit code and reason, the number of restarts";
        does "reports: a restart never helps. Limits that differ from last known good are mended";
        advice "raise the controller's memory limit";
    HalfRolled: 9, Budget::Report, 60 s;
        seen "a new version of a controller does not come up while a Pod of the old one serves; or one of its Pods is not up while another one of the same version serves";
        evidence "what the Pod waits for";
        does "reports: the engine works, and the next restart of the Pod that serves would end that";
        advice "look at the Pod that is not up: the other one serves until it is restarted";
    ReadyButUseless: 10, Budget::PerHour(5), 0 s;
        seen "arguments, environment or ServiceAccount of a controller differ from last known good; or it runs, has had no answer to a probe for as long as `QueueWedged`, and somebody changed it; or Git owns it, somebody else changed it, \
              and it fails as often as `CrashLoop` and `OomKilled` say, kustomize-controller has fetched nothing from it for 45 s, or it was told to look at its own namespace alone where its objects are in others, too";
        evidence "the fields, of an argument or the ServiceAccount also what is there and what last known good has; who wrote them and when";
        does "applies the fields as last known good; what somebody added goes once the controller has been down for 30 s";
        advice "";
    EventSinkMissing: 11, Budget::PerHour(5), 0 s;
        seen "a controller posts its events to a notification-controller that the install does not have";
        evidence "the field `--events-addr`; who wrote it and when; how long the root took when it was reconciled last";
        does "empties the argument: each event would stall a reconciliation for 15 to 40 s. A missing controller of the \
              install is created as `ObjectMissing`";
        advice "";
    QueueWedged: 12, Budget::PerHour(3), 0 s;
        seen "a probe of a root (of Flux also of one that is suspended), of the suspended HelmRelease or the ApplicationSet of nothing `linesman-probe`, or of a Receiver of the catalog's, has had no answer for 90 s (330 s while a root makes progress, \
              or half a minute more than its own timeout while it is applied or what it brought is waited for and its controller renews its Lease; \
              330 s of an ImageRepository or ImageUpdateAutomation, and of the ApplicationSet where ten others or more are beside it or its controller was told how many to look at or to look in other namespaces, or longer where a scan, or what \
              those ApplicationSets are made from, may take longer) although its controller is available; not while each worker of kustomize-controller is with another Kustomization, or each of helm-controller with another \
              HelmRelease, whose timeouts are not over (two hours where a HelmRelease is being deleted), nor while the Pod before still leads as it ends, \
              for as long as its grace lasts, nor, for a quarter of an hour, while Argo CD goes on with other \
              Applications, nor while an image controller or the applicationset-controller goes on with other objects, nor while the Git host is away for the agent, too, nor where Argo CD has taken the question away; or kustomize-controller has gone on for 45 s with a fetch that it \
              began before source-controller was held, and the mended source-controller serves";
        evidence "when the probe was sent; since when the controller's Pods run; who holds its Lease, and whether that is renewed. \
              The metrics of its queue are not read: they name no object, and the missing answer is what decides. Of Argo CD's only the requests to Redis are counted (`RedisDown`)";
        does "deletes the controller's Pod";
        advice "";
    LeaderStuck: 13, Budget::PerHour(3), 0 s;
        seen "a controller's Lease was not renewed for 70 s, its holder is gone, and another Pod waits";
        evidence "the holder; the time of the last renewal";
        does "deletes the Lease";
        advice "";
    ApiUnhealthy: 14, Budget::Report, 30 s;
        seen "the API server has not answered for 90 s about a kind of the install, or refuses the agent to list it; with Argo CD also: has never listed the Applications; after a guard that is not over also: has never listed the sync objects. \
              Or it is not well itself: its `/readyz` fails twice in a row, more than 20 % of the agent's reads in 30 s (3 or more) are answered with 5xx, or more than 1 % (3 or more) take longer than 2 s";
        evidence "since when; the kind; or the share of 5xx, the 99th percentile and what `/readyz` says";
        does "nothing until it answers: no verdict from what is not known. Only the guard (`CrdTerminating`, `NamespaceTerminating`, `SyncObjectsDeleted`) goes on. It ends by itself, half a minute after the last errors";
        advice "mend the cluster's API server, or give the agent its right back (condition RightsLost); nothing is healed until it answers";
    CrdMissing: 15, Budget::Spaced, 0 s;
        seen "a CRD of the install is gone";
        evidence "the CRD";
        does "creates it, then its objects that Git does not bring back";
        advice "";
    CrdTerminating: 16, Budget::Steady, 0 s;
        seen "a CRD of the install is being deleted";
        evidence "since when; whether its objects would prune";
        does "cuts the sync controllers' rights first, so that nothing is pruned; keeps the objects; drops the engine's finalizers; \
              creates it when it is gone";
        advice "";
    CrdStoredVersion: 17, Budget::PerHour(3), 0 s;
        seen "a CRD has objects stored in a version that the bundle, or the catalog's version of it, no longer has; or Flux says that the API server does not apply an object of it, of whose field managers one speaks of a version that the CRD does not have (`request to convert CR to an invalid group/version`)";
        evidence "`status.storedVersions`; or the object that is not applied, and the version";
        does "writes all of its objects once, so that they are stored in the version of today, and their field managers speak of that one; then takes the lost ones from the CRD's status; the API server would refuse the CRD before that. One that somebody else writes at the same time is read and written again up to five times; while any is not written, nothing is taken from the status. \
              A CRD that still stores new objects in a lost version needs a bundle in between. Of what Flux says (a Kustomization's ReconciliationFailed) the object is looked at first, once an hour, for what is said may be out of date: where its field managers do speak of that version, all objects with such ones are written, for 15 s at most; else none, and the heal is reported";
        advice "";
    UndecodableObject: 18, Budget::PerHour(3), 3 s;
        seen "a Kustomization, HelmRelease or source (GitRepository, OCIRepository, HelmRepository, HelmChart, Bucket), in any namespace, has a duration that Go cannot hold: the API server takes it, and its controller can read none of that kind any more; a Receiver, ImageRepository or ImageUpdateAutomation has one; in Argo CD a kind that cannot be listed";
        evidence "the object, the fields and their values; who wrote them and when; in Argo CD the engine's message, which names the kind";
        does "takes that one object out of the way: gives just these fields the stand-in `1h0m0s`, suspends it, so that nothing comes of that, and holds it back from Git; \
              what it brought stays. The next commit gives it back to Git, and what somebody writes there anew puts it to work again. \
              A root is mended as `SourceAltered` or `ObjectAltered`. Reports Receivers and objects of the image controllers, which are then not restarted for their silence; in namespaces that were not adopted; and with Argo CD, which names a kind and no object, \
              and cannot list it for reasons of whoever serves that kind";
        advice "correct or delete the object that is named: until then the engine is blind to all of its kind";
    RbacAltered: 19, Budget::PerHour(5), 0 s;
        seen "a role or binding of the install differs";
        evidence "the fields; who wrote them and when";
        does "applies them; a changed `roleRef` is replaced by a new binding";
        advice "";
    NamespaceMissing: 20, Budget::Spaced, 0 s;
        seen "the engine's Namespace is gone";
        evidence "the Namespace";
        does "installs everything again, in stages";
        advice "";
    NamespaceTerminating: 21, Budget::Steady, 0 s;
        seen "the engine's Namespace is being deleted";
        evidence "since when";
        does "as `CrdTerminating`, for all of it";
        advice "";
    LeftoverFinalizers: 22, Budget::PerHour(3), 0 s;
        seen "an object of the install has been in deletion for more than 60 s";
        evidence "since when; the finalizers that hold it; for a sync object the controller that should drop them, and whether it is available";
        does "drops the engine's finalizer, and no other; reports what somebody else's holds";
        advice "look for whose finalizer it is that the heal names, and have that controller run, or take the finalizer off by hand: \
                an object of the engine that is being deleted is made again only when it is gone";
    RootDeleted: 23, Budget::Spaced, 0 s;
        seen "the source or sync object, or the root Application, is gone";
        evidence "the object";
        does "creates it, stopped if a person had stopped it; its deletion prunes nothing (`deletionPolicy: Orphan`; in Argo CD no finalizer)";
        advice "";
    SyncObjectsDeleted: 0, Budget::Steady, 0 s;
        seen "somebody deletes three or more Kustomizations, HelmReleases or Applications within 10 s that Git still brings, or a root that would prune";
        evidence "their names";
        does "as `CrdTerminating`: nothing more is pruned; they go without their content, and come back from Git, or as they were";
        advice "";
    GitSecretBad: 24, Budget::Spaced, 0 s;
        seen "the Git Secret, Argo CD's host keys or the signers' keys are gone, emptied or others than ours; or the source says that it found no key to offer (`AuthenticationFailed`)";
        evidence "the fields, never their values; the commit, where it came from one; or the engine's message";
        does "writes key and host keys again from the agent's own copy; where a commit changed them, the object is held back from Git first, until another one. \
              What the source says while the Secret is as it has to be is reported";
        advice "if the source goes on saying so, look at the Secret that it names: 'kubectl --namespace flux-system describe gitrepositories flux-system'";
    HostKeyMismatch: 25, Budget::Report, 10 s;
        seen "the source says that the Git host showed another key than is known";
        evidence "the engine's message; the fingerprints that are known of the host, and the one that it shows the agent";
        does "reports: nothing is trusted on first use";
        advice "compare the fingerprints: linesman githost show; if the Git host's key was changed on purpose: linesman githost accept-host-key";
    KeyRevoked: 26, Budget::Report, 10 s;
        seen "the source says that the Git host refused the key; or Argo CD did, and says so no more without having been asked since";
        evidence "the engine's message";
        does "reports; source-controller is not restarted, it holds the only copy of what was fetched. Where the agent's own look is refused, too, \
              it asks the hub to register the key again, and makes another one where that key was revoked; the engine is asked to fetch as soon as the agent can";
        advice "register the cluster's deploy key at the Git host again: 'linesman cluster readopt'";
    GitUnreachable: 27, Budget::Report, 60 s;
        seen "the source cannot be fetched for another reason";
        evidence "the engine's message; where the repository lacks the branch, both by name";
        does "reports; drift is still corrected from what was fetched, and the engine is asked to fetch as soon as the agent can";
        advice "make the Git host reachable from the cluster; where the message says that the branch is missing, push it again";
    SourceAltered: 28, Budget::PerHour(5), 0 s;
        seen "URL, branch, path, Secret or deletion policy of a root differ from what the hub assigned; it is pinned to a commit, tag or version; it applies to another cluster, to one Namespace or under other names; the root Application has more sources than that; a commit stopped a root";
        evidence "the fields; who wrote them and when; the commit, where it came from one";
        does "applies them; where a commit changed them, the object is held back from Git first, until another one";
        advice "";
    SuspendedByHuman: 29, Budget::Report, 0 s;
        seen "a root has `spec.suspend`; in Argo CD no `automated`, the annotation `skip-reconcile`, or a pinned commit; or `syncWindows` of its AppProject `default` that may be for the root, \
              while that is `OutOfSync` with a commit for which no operation begins. What a commit stopped is `SourceAltered`";
        evidence "who set the field, and when";
        does "reports, and leaves it suspended, whatever else is mended of it: that is how people stop a delivery. What it said before is not told of any more; that Flux' controllers answer for it is (`QueueWedged`). Where a maintenance window ends over it, as over any fault, \
              that is an alarm";
        advice "ask who suspended it, then resume it: set spec.suspend to false, or use 'flux resume'; in Argo CD switch spec.syncPolicy.automated on again, or take the window out of spec.syncWindows of AppProject default";
    SignatureFailed: 30, Budget::Report, 10 s;
        seen "the head commit has no valid signature";
        evidence "the engine's message, which names the commit";
        does "reports, and never bypasses it";
        advice "sign the catalog's head commit with a known key";
    ArtifactLost: 31, Budget::PerHour(3), 10 s;
        seen "source-controller cannot store what it fetched, or kustomize-controller has no room to unpack it; in Argo CD the repo-server's disk is full";
        evidence "the engine's message";
        does "asks it again. Where a minute after that it still says `no space left on device`, deletes its Pod: what it keeps is in volumes of the Pod, which begin empty. \
              Not that of what fetches while the agent itself cannot read the catalog (`GitUnreachable`, `KeyRevoked`, `HostKeyMismatch`): there is no other copy then. \
              What an object below the root says of it is only reported";
        advice "look at the log and the volumes of source-controller and kustomize-controller, in Argo CD the repo-server's; where one is full again, give it a larger one";
    ArtifactUnreachable: 32, Budget::Report, 60 s;
        seen "kustomize-controller cannot fetch from source-controller; in Argo CD the controller cannot from the repo-server";
        evidence "the engine's message; the Pods behind the Service, and which of them are ready";
        does "reports; Service and policies of the install are mended as `ObjectMissing` and `ObjectAltered`, and a source-controller that gives another address than it did \
              as `ReadyButUseless`, or by a commit as `BadEngineCommit`";
        advice "look at the log and the Service of source-controller, in Argo CD of the repo-server";
    PolicyBlocks: 33, Budget::Report, 60 s;
        seen "the source cannot be fetched, in Argo CD also: the repo-server, which is available, has no answer in a minute; while the agent in the same cluster reads the catalog with the same key, before and after it began";
        evidence "the engine's message; the names of the NetworkPolicies in the engine's namespace that are not the install's";
        does "reports: what keeps the engine from the Git host is somebody else's. The install's own policies are mended as \
              `ObjectAltered`, and what fetches is not restarted";
        advice "look for what keeps the engine's namespace from the Git host: its NetworkPolicies ('kubectl get \
                networkpolicies --all-namespaces'), an egress proxy, a service mesh";
    WebhookBlocks: 34, Budget::Report, 20 s;
        seen "an admission webhook or policy refuses the engine's Pods";
        evidence "the API server's message, which names it; of a StatefulSet its answer to a dry run, for nothing else says so";
        does "reports: it belongs to somebody else. Once a dry run shows that Pods are taken again, has Kubernetes make them at once";
        advice "mend or remove the admission webhook that refuses the engine's Pods";
    QuotaBlocks: 35, Budget::Report, 20 s;
        seen "a quota refuses the engine's Pods";
        evidence "the API server's message, which names it; of a StatefulSet its answer to a dry run, for nothing else says so";
        does "reports; the install's own quota is mended as `ObjectAltered`. Once there is room, as `WebhookBlocks`";
        advice "raise the ResourceQuota of the engine's namespace";
    PodSecurityBlocks: 36, Budget::Report, 20 s;
        seen "Pod Security refuses the engine's Pods";
        evidence "the API server's message; of a StatefulSet its answer to a dry run, for nothing else says so";
        does "reports; the install's own Namespace labels and Pod fields are mended as `ObjectAltered`. Once they are allowed, as \
              `WebhookBlocks`";
        advice "allow the engine's Pods in its namespace's Pod Security level";
    Unschedulable: 37, Budget::PerHour(3), 20 s;
        seen "no node takes a controller's Pod; or a Pod of it failed for good, as one that was evicted, and nobody removes it";
        evidence "the scheduler's message; the Pod and why it failed";
        does "deletes Pods that have failed; reports what no node takes";
        advice "make room on a node for the engine's Pods";
    BuildFailed: 38, Budget::Report, 60 s;
        seen "a sync object's files cannot be built";
        evidence "the engine's message, which names the file";
        does "reports: a commit is applied as a whole or not at all";
        advice "mend the catalog: the message names the file or object";
    ApplyFailed: 39, Budget::Report, 60 s;
        seen "a sync object's content is refused by the API server, or what left it cannot be deleted, or one of its CEL expressions is invalid; or a Helm release fails; in Argo CD an operation failed, also where it is tried again";
        evidence "the engine's message, which names the object";
        does "reports. An object of the engine that is refused while the agent owns fields of it, too, is given to the engine, which is \
              asked to try again. An operation of Argo CD's root that is tried no more, although the commit may be applied by now, is begun \
              anew after 1, 5 and 15 min, then each half an hour; not one that a person ended";
        advice "mend the catalog: the message names the file or object";
    HealthCheckFailed: 40, Budget::Report, 60 s;
        seen "what a sync object brought does not become healthy, or did not before the next try";
        evidence "the engine's message, which names the object";
        does "reports";
        advice "look at the object that the message names";
    DependencyNotReady: 41, Budget::Report, 60 s;
        seen "a sync object waits for another, or for its source";
        evidence "the engine's message; named only where nothing else is wrong";
        does "reports";
        advice "look at the object that the message names";
    PathMissing: 42, Budget::Report, 60 s;
        seen "a sync object's path is not in the catalog";
        evidence "the engine's message";
        does "reports; a root's path is mended as `SourceAltered`";
        advice "commit the directory that it names to the catalog";
    BadEngineCommit: 43, Budget::PerHour(5), 10 s;
        seen "a commit's version of a controller cannot run, is scaled to 0, runs and does not answer (while kustomize-controller says that it applies a root or waits for what that brought, half a minute longer than the root's own timeout), serves nobody or was told to look at its own namespace alone (`--watch-all-namespaces=false`) where its objects are in others, too, fails again and again as `CrashLoop` and `OomKilled` say with no other Pod of it at work, or fails for a minute beside Pods that may all be of the old one (10 min, where one of the new one works and old ones are left); of a role, a binding or a setting: what depends on it complains; of a role or a binding of Argo CD: its operation on that commit is refused something for want of rights";
        evidence "what the Pod waits for; the commit and the fields that it changed";
        does "holds just that object back from Git (in Argo CD by its Application's `ignoreDifferences`), applies it as last known good, and gives it back when the catalog has another commit that still has it: at once the first time, later and later (10 min to 6 h) if that breaks it again; or when somebody says so at the hub";
        advice "";
    EngineRemovedByCommit: 44, Budget::Spaced, 0 s;
        seen "the engine prunes an object that it needs and that a commit removed from the catalog, or has done so; all else that such a commit removed, too";
        evidence "the object; Flux' inventory, or what Argo CD says it would prune";
        does "creates it as last known good, and holds it back from Git, so that it is not pruned again, until the catalog has it once more. The guard policy keeps CRDs, Namespace and roots";
        advice "";
    EngineUpgradeStuck: 48, Budget::PerHour(5), 10 s;
        seen "a commit's version of a controller has not come up for 10 min, or for as long as its `progressDeadlineSeconds` says where that is longer, and nothing says why";
        evidence "the commit and the fields that it changed";
        does "as `BadEngineCommit`";
        advice "";
    ForeignManager: 45, Budget::Report, 0 s;
        seen "Helm, an operator (Flux, Argo CD, OLM), Azure's Flux extension or Project Syn manages the engine, or a root that is not ours follows something else, or one that an earlier adoption left follows another path";
        evidence "the mark; who wrote it";
        does "only observes: nothing is written";
        advice "decide who manages the engine: remove the other manager, or this cluster's adoption";
    TwoInstalls: 46, Budget::Report, 60 s;
        seen "controllers of a second install of the engine run in another namespace";
        evidence "both namespaces; in Argo CD an object that both bring, where the root has a `SharedResourceWarning`";
        does "reports: which of them is wanted is for people to say";
        advice "remove one of the two installs: both reconcile the same objects";
    ClockSkew: 47, Budget::Report, 60 s;
        seen "a controller's Lease was renewed in the future; or the engine says that a certificate is not valid yet";
        evidence "the Pod, or who met the certificate; by how much";
        does "reports";
        advice "set the clocks of the cluster's nodes: certificates and Leases depend on them";
    AgentDrift: 49, Budget::Spaced, 0 s;
        seen "a role, binding, policy, quota or Service of the agent itself is gone or differs from the adoption YAML; looked at every minute";
        evidence "the fields; who wrote them and when";
        does "applies it; rights that were taken from the agent it cannot give itself: condition `RightsLost` names them, by the API \
              server's own word, also where a write of another heal is refused for want of one. Who comes through the line as \
              what, and the agent's Deployment, are its owner's; of that, an image that the hub wished and does not hear goes back";
        advice "";
    AgentLost: 50, Budget::Report, 0 s;
        seen "at the hub: nothing was heard of a cluster's agent, on its line or beside it";
        evidence "since when; how its last line ended";
        does "reports, at most 45 s after the agent's end (phase *Offline*): there is nobody in the cluster to act. In the cluster, the kubelet starts an \
              agent that fails its probe anew; the engine goes on with what it has";
        advice "look whether the cluster is up and reaches the hub; then at its agent: 'kubectl --namespace linesman get pods', and its log";
    DuplicateAgent: 57, Budget::Report, 0 s;
        seen "at the hub: three times in ten minutes another agent with a cluster's keys took its line while the one before answered";
        evidence "both processes, their addresses, and when it was last";
        does "reports, and tells the one that loses the line to wait 30 s, so that the cluster stays in reach; over after ten minutes without a takeover. An \
              agent that is restarted or rolled out drains its line first, and one that died does not answer: neither counts";
        advice "find the other agent by its address: a copy of the cluster, or of its Secret linesman-keys; end it there ('kubectl delete namespace linesman' in the copy, which 'linesman cluster add' adopts under a name of its own); where it is not yours, 'linesman cluster revoke', then 'linesman cluster readopt' gives the cluster new keys";
    ProjectMissing: 51, Budget::Spaced, 0 s;
        seen "Argo CD: the AppProject `default`, which the root refers to, is gone or changed";
        evidence "the object; the fields, who wrote them and when";
        does "creates or applies it";
        advice "";
    EngineSecretMissing: 52, Budget::Spaced, 0 s;
        seen "Argo CD: `argocd-secret` or `argocd-redis` is gone, or holds another value than was given";
        evidence "the fields, never their values";
        does "writes the former values from the agent's own copy: running Pods hold them";
        advice "";
    EngineConfigBroken: 53, Budget::PerHour(5), 0 s;
        seen "Argo CD: a setting of `argocd-cm` that Linesman gives differs, or any other one of the install's ConfigMaps while a controller crashes, does not answer, or the root complains; for some seconds, that all it knows of outcome and health is Unknown, without a word why, is a complaint, too: so it is where Argo CD cannot read its settings";
        evidence "the keys; what shows that they do harm; who wrote them and when";
        does "writes those keys as last known good, and removes what was added since; settings with which the engine works are people's";
        advice "";
    OperationStuck: 54, Budget::PerHour(3), 5 s;
        seen "Argo CD: a running operation of the root has not got on for 10 min (its message, its results and the state of what it applies stay the same), or it tries an old commit again although there is a new one, where its tries do not look for that (`retry.refresh`)";
        evidence "since when, its message; the commit, the number of tries, the head";
        does "ends the operation: Argo CD then begins anew, with the head; where that is what it tried, as `ApplyFailed`";
        advice "";
    RedisDown: 55, Budget::PerHour(3), 30 s;
        seen "Argo CD: its Redis runs, but for 45 s it answered none of the requests that each application-controller makes, by what that counts in its metrics; or the root says that it does not reach it, or an Application below the root does so while the Redis Pod runs for 140 s and no count says otherwise";
        evidence "since when none was answered; else the condition of the root or of that Application";
        does "deletes the Redis Pod, which only caches; its Service and Deployment are mended as `ObjectMissing` and `ObjectAltered`. A Redis that `argocd-cmd-params-cm` names and that is not the install's is only reported";
        advice "";
    KubernetesUnsupported: 56, Budget::Report, 60 s;
        seen "the cluster's Kubernetes is older than the engine's version is made for";
        evidence "both versions";
        does "reports: the engine is kept and healed as ever";
        advice "upgrade the cluster's Kubernetes, or give it an older version of the engine";
    PodSuperseded: 0, Budget::PerHour(5), 5 s;
        seen "a StatefulSet waits for a Pod of a former version that does not become ready";
        evidence "what the Pod waits for";
        does "deletes that Pod, and none that is ready: it comes back in the version that is wanted";
        advice "";
    ObjectAltered: 0, Budget::PerHour(5), 0 s;
        seen "fields of an object of the install differ, and no other class names it";
        evidence "the fields; who wrote them and when";
        does "applies them; what somebody added to a controller since it was last known good, and what stops it, is removed once it has not \
              worked for 30 s; a controller's ServiceAccount gives tokens again; the guard policy is replaced as a whole";
        advice "";
    NotAvailable: 0, Budget::Report, 60 s;
        seen "a controller is not available, and nothing says why";
        evidence "the Deployment";
        does "reports";
        advice "look at the controller's Pods and Events";
}
