//! The hub itself: engines' bundles, the catalog, and the Git hosts that clusters read it from.

use super::Caller::{Anyone, User};
use super::{Operation, operation};

pub(super) const ALL: &[Operation] = &[
    operation(
        ("get", "/v1/hub"),
        Anyone,
        "The hub's id, version, clock and protocol",
        ("", "HubInfo"),
    ),
    operation(
        ("get", "/v1/hub/image-registry"),
        User,
        "What the hub says for clusters that have none of their own",
        ("", "RegistryView"),
    ),
    operation(
        ("put", "/v1/hub/image-registry"),
        User,
        "The same for clusters that have none of their own",
        ("RegistryRequest", "RegistryView"),
    ),
    operation(
        ("get", "/v1/bundles"),
        User,
        "Imported engine bundles",
        ("", "[]BundleView"),
    ),
    operation(
        ("post", "/v1/bundles"),
        User,
        "Import an engine's install manifest (YAML, .gz, .tar.gz); ?engine=, ?version= say what it has to be, ?components= which controllers are kept, ?source=, ?verifiedBy= what goes on record",
        ("", "BundleView"),
    ),
    operation(
        ("delete", "/v1/bundles/{digest}"),
        User,
        "Remove a bundle that no cluster needs; one that was removed stays so",
        ("", ""),
    ),
    operation(
        ("get", "/v1/catalog"),
        User,
        "Where the catalog is and who its host is",
        ("", "CatalogView"),
    ),
    operation(
        ("get", "/v1/catalog/ssh-keys"),
        User,
        "SSH keys for the catalog: the caller's, or of ?user=NAME, or of all (*)",
        ("", "[]SshKeyView"),
    ),
    operation(
        ("post", "/v1/catalog/ssh-keys"),
        User,
        "Let the caller push with an SSH key",
        ("NewSshKey", ""),
    ),
    operation(
        ("delete", "/v1/catalog/ssh-keys/{id}"),
        User,
        "Take an SSH key away: the caller's, or anyone's for admins",
        ("", ""),
    ),
    operation(
        ("get", "/v1/catalog/signers"),
        User,
        "Keys of which one has to have signed the catalog's head",
        ("", "SignersView"),
    ),
    operation(
        ("post", "/v1/catalog/signers"),
        User,
        "Verify the catalog's head with this key, too; every cluster is told",
        ("NewSigner", "SignersView"),
    ),
    operation(
        ("post", "/v1/catalog/signers/drop"),
        User,
        "Verify with this key no longer; without the last one nothing is verified",
        ("DropSigner", "SignersView"),
    ),
    operation(
        ("get", "/v1/githosts"),
        User,
        "Git hosts with the keys that clusters know them by",
        ("", "[]GitHostView"),
    ),
    operation(
        ("get", "/v1/githosts/{name}"),
        User,
        "One Git host: its keys, what clusters have and meet",
        ("", "GitHostView"),
    ),
    operation(
        ("post", "/v1/githosts/{name}/host-keys"),
        User,
        "Trust a key that was met, or those of a known_hosts file; every cluster is told",
        ("AcceptHostKey", "GitHostView"),
    ),
    operation(
        ("post", "/v1/githosts/{name}/host-keys/drop"),
        User,
        "Tell a host's old key no longer",
        ("DropHostKey", "GitHostView"),
    ),
    operation(
        ("post", "/v1/githosts/{name}/rotate-host-key"),
        User,
        "Let the built-in Git server show another key, when clusters know it or now",
        ("RotateHostKey", "GitHostView"),
    ),
    operation(
        ("get", "/v1/hub/checks"),
        User,
        "The hub's checks of itself",
        ("", "Check"),
    ),
    operation(
        ("post", "/v1/hub/notices/test"),
        User,
        "Send a test to each receiver of notices, and say what it answered",
        ("", "Check"),
    ),
    operation(("get", "/openapi.json"), Anyone, "This document", ("", "")),
];
