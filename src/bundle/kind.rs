//! The closed set of Kubernetes kinds that an install consists of, so that no discovery is ever needed.

use std::fmt;
use std::str::FromStr;

/// In the order in which they are applied; see [`Kind::stage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Namespace,
    CustomResourceDefinition,
    ClusterRole,
    ServiceAccount,
    ClusterRoleBinding,
    Role,
    RoleBinding,
    ResourceQuota,
    ConfigMap,
    Service,
    NetworkPolicy,
    Secret,
    Deployment,
    StatefulSet,
    GitRepository,
    HelmRepository,
    OciRepository,
    Bucket,
    HelmChart,
    Kustomization,
    HelmRelease,
    AppProject,
    Application,
    ApplicationSet,
    Receiver,
    ImageRepository,
    ImageUpdateAutomation,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
}

impl Kind {
    pub const ALL: [Self; 29] = [
        Self::Namespace,
        Self::CustomResourceDefinition,
        Self::ClusterRole,
        Self::ServiceAccount,
        Self::ClusterRoleBinding,
        Self::Role,
        Self::RoleBinding,
        Self::ResourceQuota,
        Self::ConfigMap,
        Self::Service,
        Self::NetworkPolicy,
        Self::Secret,
        Self::Deployment,
        Self::StatefulSet,
        Self::GitRepository,
        Self::HelmRepository,
        Self::OciRepository,
        Self::Bucket,
        Self::HelmChart,
        Self::Kustomization,
        Self::HelmRelease,
        Self::AppProject,
        Self::Application,
        Self::ApplicationSet,
        Self::Receiver,
        Self::ImageRepository,
        Self::ImageUpdateAutomation,
        Self::ValidatingAdmissionPolicy,
        Self::ValidatingAdmissionPolicyBinding,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::CustomResourceDefinition => "CustomResourceDefinition",
            Self::ClusterRole => "ClusterRole",
            Self::ServiceAccount => "ServiceAccount",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
            Self::Role => "Role",
            Self::RoleBinding => "RoleBinding",
            Self::ResourceQuota => "ResourceQuota",
            Self::ConfigMap => "ConfigMap",
            Self::Service => "Service",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::Secret => "Secret",
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::GitRepository => "GitRepository",
            Self::HelmRepository => "HelmRepository",
            Self::OciRepository => "OCIRepository",
            Self::Bucket => "Bucket",
            Self::HelmChart => "HelmChart",
            Self::Kustomization => "Kustomization",
            Self::HelmRelease => "HelmRelease",
            Self::AppProject => "AppProject",
            Self::Application => "Application",
            Self::ApplicationSet => "ApplicationSet",
            Self::Receiver => "Receiver",
            Self::ImageRepository => "ImageRepository",
            Self::ImageUpdateAutomation => "ImageUpdateAutomation",
            Self::ValidatingAdmissionPolicy => "ValidatingAdmissionPolicy",
            Self::ValidatingAdmissionPolicyBinding => "ValidatingAdmissionPolicyBinding",
        }
    }

    /// Group (empty for the core), version, plural.
    pub fn resource(self) -> (&'static str, &'static str, &'static str) {
        const RBAC: &str = "rbac.authorization.k8s.io";
        const ADMISSION: &str = "admissionregistration.k8s.io";
        const SOURCE: &str = "source.toolkit.fluxcd.io";
        const IMAGE: &str = "image.toolkit.fluxcd.io";
        match self {
            Self::Namespace => ("", "v1", "namespaces"),
            Self::CustomResourceDefinition => {
                ("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            }
            Self::ClusterRole => (RBAC, "v1", "clusterroles"),
            Self::ServiceAccount => ("", "v1", "serviceaccounts"),
            Self::ClusterRoleBinding => (RBAC, "v1", "clusterrolebindings"),
            Self::Role => (RBAC, "v1", "roles"),
            Self::RoleBinding => (RBAC, "v1", "rolebindings"),
            Self::ResourceQuota => ("", "v1", "resourcequotas"),
            Self::ConfigMap => ("", "v1", "configmaps"),
            Self::Service => ("", "v1", "services"),
            Self::NetworkPolicy => ("networking.k8s.io", "v1", "networkpolicies"),
            Self::Secret => ("", "v1", "secrets"),
            Self::Deployment => ("apps", "v1", "deployments"),
            Self::StatefulSet => ("apps", "v1", "statefulsets"),
            Self::GitRepository => (SOURCE, "v1", "gitrepositories"),
            Self::HelmRepository => (SOURCE, "v1", "helmrepositories"),
            Self::OciRepository => (SOURCE, "v1", "ocirepositories"),
            Self::Bucket => (SOURCE, "v1", "buckets"),
            Self::HelmChart => (SOURCE, "v1", "helmcharts"),
            Self::Kustomization => ("kustomize.toolkit.fluxcd.io", "v1", "kustomizations"),
            Self::HelmRelease => ("helm.toolkit.fluxcd.io", "v2", "helmreleases"),
            Self::AppProject => ("argoproj.io", "v1alpha1", "appprojects"),
            Self::Application => ("argoproj.io", "v1alpha1", "applications"),
            Self::ApplicationSet => ("argoproj.io", "v1alpha1", "applicationsets"),
            Self::Receiver => ("notification.toolkit.fluxcd.io", "v1", "receivers"),
            Self::ImageRepository => (IMAGE, "v1", "imagerepositories"),
            Self::ImageUpdateAutomation => (IMAGE, "v1", "imageupdateautomations"),
            Self::ValidatingAdmissionPolicy => (ADMISSION, "v1", "validatingadmissionpolicies"),
            Self::ValidatingAdmissionPolicyBinding => {
                (ADMISSION, "v1", "validatingadmissionpolicybindings")
            }
        }
    }

    pub fn api_version(self) -> String {
        let (group, version, _) = self.resource();
        if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        }
    }

    pub fn namespaced(self) -> bool {
        match self {
            Self::Namespace
            | Self::CustomResourceDefinition
            | Self::ClusterRole
            | Self::ClusterRoleBinding
            | Self::ValidatingAdmissionPolicy
            | Self::ValidatingAdmissionPolicyBinding => false,
            Self::ServiceAccount
            | Self::Role
            | Self::RoleBinding
            | Self::ResourceQuota
            | Self::ConfigMap
            | Self::Service
            | Self::NetworkPolicy
            | Self::Secret
            | Self::Deployment
            | Self::StatefulSet
            | Self::GitRepository
            | Self::HelmRepository
            | Self::OciRepository
            | Self::Bucket
            | Self::HelmChart
            | Self::Kustomization
            | Self::HelmRelease
            | Self::AppProject
            | Self::Application
            | Self::ApplicationSet
            | Self::Receiver
            | Self::ImageRepository
            | Self::ImageUpdateAutomation => true,
        }
    }

    /// When it is applied: 1 what others stand on, 2 identities and plumbing, 3 Secrets, 4 workloads,
    /// 5 sources and projects, 6 what follows them, 7 what guards all of it.
    pub fn stage(self) -> u8 {
        match self {
            Self::Namespace | Self::CustomResourceDefinition | Self::ClusterRole => 1,
            Self::ServiceAccount
            | Self::ClusterRoleBinding
            | Self::Role
            | Self::RoleBinding
            | Self::ResourceQuota
            | Self::ConfigMap
            | Self::Service
            | Self::NetworkPolicy => 2,
            Self::Secret => 3,
            Self::Deployment | Self::StatefulSet => 4,
            Self::GitRepository
            | Self::HelmRepository
            | Self::OciRepository
            | Self::Bucket
            | Self::HelmChart
            | Self::AppProject => 5,
            Self::Kustomization
            | Self::HelmRelease
            | Self::Application
            | Self::ApplicationSet
            | Self::Receiver
            | Self::ImageRepository
            | Self::ImageUpdateAutomation => 6,
            Self::ValidatingAdmissionPolicy | Self::ValidatingAdmissionPolicyBinding => 7,
        }
    }

    /// What source-controller fetches.
    pub fn is_source(self) -> bool {
        let (group, _, _) = self.resource();
        group == "source.toolkit.fluxcd.io"
    }

    /// What a controller of Flux is asked with that neither source nor sync object is of.
    pub fn is_witness(self) -> bool {
        matches!(
            self,
            Self::Receiver | Self::ImageRepository | Self::ImageUpdateAutomation
        )
    }

    /// Whether its end takes other objects with it.
    pub fn holds_others(self) -> bool {
        matches!(self, Self::Namespace | Self::CustomResourceDefinition)
    }

    /// A role, or what gives one to somebody.
    pub fn is_rbac(self) -> bool {
        let (group, _, _) = self.resource();
        group == "rbac.authorization.k8s.io"
    }

    /// A kind that an install manifest may hold.
    pub fn installable(self) -> bool {
        self.stage() <= 4
    }

    /// A kind that an API server may lack (Kubernetes 1.30 brought it), and that the install works without.
    pub fn optional(self) -> bool {
        self.stage() == 7
    }

    pub fn parse(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|k| k.as_str() == kind && k.api_version() == api_version)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One object's place in the cluster; prints as `Deployment flux-system/source-controller`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    pub kind: Kind,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
}

impl ObjectId {
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        let namespace = if kind.namespaced() { namespace } else { "" };
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The definition of a kind that is none of Kubernetes' own.
    pub fn crd_of(kind: Kind) -> Self {
        let (group, _, plural) = kind.resource();
        let name = format!("{plural}.{group}");
        Self::new(Kind::CustomResourceDefinition, "", &name)
    }
}

/// As [`ObjectId`] is displayed, of a kind that is known.
impl FromStr for ObjectId {
    type Err = ObjectIdError;

    fn from_str(text: &str) -> Result<Self, ObjectIdError> {
        let parsed = || {
            let (kind, place) = text.split_once(' ')?;
            let kind = Kind::ALL.into_iter().find(|k| k.as_str() == kind)?;
            // The name of a role may have a slash in it.
            let (namespace, name) = if kind.namespaced() {
                place.split_once('/')?
            } else {
                ("", place)
            };
            let some = !name.is_empty() && kind.namespaced() != namespace.is_empty();
            some.then(|| Self::new(kind, namespace, name))
        };
        parsed().ok_or_else(|| ObjectIdError(text.to_owned()))
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no object of a known kind")]
pub struct ObjectIdError(String);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}
