//! The store: records behind one type. What any database must do stands in the table of [`Store`]'s methods; the
//! statements that do it are one text, `sql/`, built for SQLite and for PostgreSQL.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use crate::hub::access::Grant;
use crate::hub::audit::Durability;
use crate::hub::login::pending::{Bounds, Wrong};
use crate::hub::registration::{Claim, Redeemed};
use crate::hub::twin::fault::Unrestored;
use crate::wire::api::{BundleView, GitRoute, Policy};
use crate::wire::id::{ClusterName, Digest};
use crate::wire::report::{Condition, HealRecord};

pub mod away;
mod bell;
pub mod calls;
mod changes;
mod error;
mod opening;
pub mod patience;
pub mod postgres;
pub mod records;
pub mod sqlite;
mod terms;
mod together;

pub use bell::Bell;
pub use changes::AccessChanges;
pub use error::StoreError;
pub use opening::{Records, Share};
pub use records::audit::{
    Anchor, AuditPage, AuditQuery, AuditRow, AuditWrites, DRY_RUN, LOOKED_AT, OfAction, OfRequest,
    Pruned,
};
pub use records::logins::{Asked, Decision, Waiting, WaitingKind};
pub use records::replicas::{Changes, LineRow, Located, Noted, Reach, Replica};
pub use records::unknown::{Accept, Accepted, UnknownAgent, UnknownReason};
pub use records::users::{
    ApiToken, Arrival, Call, Called, Ended, EndedAccess, FIRST_ADMIN, Known, Pair, Provided,
    Session, SessionToken, SshKey, UserRow,
};
pub use records::{
    BundleUse, Cluster, ClusterKey, Details, HostKeysOf, Images, JoinToken, Joined, KeyKind,
    KeyState, NewBundle, NewClusterRow, Reported, Revision, Stored, TokenKind, WITHIN,
};

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Cluster and class.
pub type TroubleKey = (ClusterName, String);

/// The hub's records. Cheap to clone.
#[derive(Clone)]
pub enum Store {
    Sqlite(sqlite::Sqlite),
    Postgres(postgres::Postgres),
}

/// One line a method: the contract, and the hand-over to the database.
/// `[access]` = changes what requests are judged by.
macro_rules! contract {
    ($($(#[$doc:meta])* $([$access:ident])? $name:ident(&self $(, $arg:ident: $ty:ty)*) -> $ret:ty;)*) => {
        impl Store {
            $(
                $(#[$doc])*
                pub async fn $name(&self $(, $arg: $ty)*) -> Result<$ret> {
                    $(let _moves = self.$access().moving();)?
                    match self {
                        Self::Sqlite(store) => store.$name($($arg),*).await,
                        Self::Postgres(store) => {
                            let asked = Box::pin(store.$name($($arg),*));
                            store.away.named(patience::call(stringify!($name), asked).await)
                        }
                    }
                }
            )*
        }
    };
}

contract! {
    /// The hub's own id, a UUID made with the database.
    hub_id(&self) -> String;
    /// What the database says audit rows outlive.
    audit_durability(&self) -> Durability;
    /// A read and a write, for readiness.
    check(&self) -> ();

    /// [`StoreError::NoBundle`] where its bundle is not there any more.
    create_cluster(&self, new: NewClusterRow, now: OffsetDateTime) -> Cluster;
    /// A living cluster by its name.
    cluster(&self, name: &ClusterName) -> Option<Cluster>;
    /// Also finds removed ones.
    cluster_by_id(&self, id: &str) -> Option<Cluster>;
    /// Living clusters in the order of their names, those behind `after`.
    clusters(&self, after: Option<&str>, limit: u32) -> Vec<Cluster>;
    /// Counts the cluster's revision up, for a change that is made elsewhere; false = it was another one by then.
    claim_cluster(&self, of: Revision<'_>, now: OffsetDateTime) -> bool;
    /// Leaves a tombstone, revokes keys and tokens, and ends what grants and hub tokens let people do by its name, which it gives; None =
    /// there is no such cluster.
    [access] remove_cluster(&self, id: &str, now: OffsetDateTime) -> Option<EndedAccess>;
    /// Revokes its keys and its join tokens, and keeps `condition`, which says why; gives the keys that ended. Empty = none
    /// was in force, and nothing was changed.
    [access] revoke_cluster(&self, id: &str, condition: Condition, now: OffsetDateTime) -> Vec<ClusterKey>;
    /// Lists an agent that signed well by a key that is not known, or notes that it came again; its `first_seen` counts the
    /// first time only. False = the list is full of others that came a moment ago.
    note_unknown(&self, agent: UnknownAgent) -> bool;
    /// In the order of the clusters that they claim.
    unknown_agents(&self) -> Vec<UnknownAgent>;
    unknown_agent(&self, fingerprint: &str) -> Option<UnknownAgent>;
    /// Decides by [`crate::hub::registration::accept`] and does it, in one transaction.
    [access] accept_agent(&self, accept: Accept, now: OffsetDateTime) -> Accepted;
    /// Those of these clusters whose keys an operator revoked.
    revoked(&self, clusters: Vec<String>) -> Vec<ClusterName>;
    /// Changes of a cluster, each of the revision that it was judged by; false or None = it has another one by now or was
    /// removed, and nothing changed. Labels count as a change of access, which grants choose clusters by.
    [access] relabel(&self, of: Revision<'_>, labels: &BTreeMap<String, String>, now: OffsetDateTime) -> bool;
    /// What the hub asks of the cluster's watchdog from now on.
    set_policy(&self, of: Revision<'_>, policy: Policy, now: OffsetDateTime) -> bool;
    /// The bundle that the cluster's engine shall run, of the engine that it has, and the seconds in which it has to work; gives the number of the wish,
    /// None also where the bundle was removed.
    set_engine(&self, of: Revision<'_>, bundle: &BundleView, within: u32, now: OffsetDateTime) -> Option<u64>;
    /// The same where another engine takes the place of the one that it has: its bundle, and the catalog's path that it follows.
    replace_engine(&self, of: Revision<'_>, to: (&BundleView, &str), within: u32, now: OffsetDateTime) -> Option<u64>;
    /// Whence the cluster's engine gets its images: empty = where its bundle says, None = the hub's default. Gives the
    /// number of the wish.
    set_registry(&self, of: Revision<'_>, images: Option<Images>, now: OffsetDateTime) -> Option<u64>;
    /// How the cluster reaches the Git host from now on: as chosen, and whether its agent found no route.
    set_git_route(&self, of: Revision<'_>, route: (GitRoute, bool), now: OffsetDateTime) -> bool;
    /// The image that the cluster's agent shall run; None = the one that it runs.
    set_agent_image(&self, of: Revision<'_>, image: Option<String>, now: OffsetDateTime) -> Option<u64>;
    /// The default of all clusters; None = where bundles say.
    default_registry(&self) -> Option<Images>;
    /// Puts this default in place of that; false = there was another by now, and nothing changed.
    set_default_registry(&self, before: Option<Images>, after: Option<Images>) -> bool;
    /// The next epoch of the cluster's line; never gives one twice.
    next_epoch(&self, cluster_id: &str) -> u64;
    /// Living clusters that have joined and have a key in force.
    joined(&self) -> Vec<Joined>;
    /// The same of these ids.
    joined_of(&self, ids: &[String]) -> Vec<Joined>;
    /// Notes when each cluster was heard last; what is known counts where it is later, and not of a clock that was ahead.
    seen(&self, seen: Vec<(String, OffsetDateTime)>, now: OffsetDateTime) -> ();
    /// The revision of an assignment whose content hashes to `hash`: a new one where the hash is new. It is above the one before, and
    /// no less than the milliseconds since 1970: records that are an older copy go on above what agents have heard.
    assignment_revision(&self, cluster_id: &str, hash: &str, now: OffsetDateTime) -> u64;

    /// A key in any state, with the cluster that it belongs to (which may be removed).
    cluster_key_by_fingerprint(&self, fingerprint: &str) -> Option<ClusterKey>;
    cluster_keys(&self, cluster_id: &str) -> Vec<ClusterKey>;
    /// Notes that the cluster shall replace its present key of this kind; gives that key, None = it has none.
    ask_to_replace(&self, cluster_id: &str, kind: KeyKind, now: OffsetDateTime) -> Option<ClusterKey>;
    /// Registers a deploy key; idempotent on the key. None = another cluster has it, or it or the cluster was revoked.
    add_deploy_key(&self, cluster_id: &str, public: crate::keys::Public, replaces: Option<crate::keys::Public>, now: OffsetDateTime) -> Option<ClusterKey>;

    /// Makes `public` the cluster's identity beside those that it has, which retire; idempotent. None = another cluster
    /// has it, or it or the cluster was revoked.
    add_identity(&self, cluster_id: &str, public: crate::keys::Public, now: OffsetDateTime) -> Option<ClusterKey>;
    /// Gives the cluster a new identity, revokes all its keys but that and `deploy`, and ends its conflict; gives the keys
    /// that ended. None = the identity or the deploy key is no longer what it was.
    recover_identity(&self, deploy: &ClusterKey, identity: crate::keys::Public, now: OffsetDateTime) -> Option<Vec<ClusterKey>>;
    /// Some of the identity keys that retired before `limit`.
    retired(&self, limit: OffsetDateTime) -> Vec<ClusterKey>;
    /// Revokes a key that has retired; false = it had ended.
    end_retired(&self, fingerprint: &str, now: OffsetDateTime) -> bool;
    /// Revokes every other key of the same kind of this key's cluster, if this one is active; gives those.
    settle_key(&self, key: &ClusterKey, now: OffsetDateTime) -> Vec<ClusterKey>;
    /// Those of these keys that have ended, of clusters that are not removed; each with whether the cluster's agent had moved on
    /// from it by itself.
    ended_keys(&self, fingerprints: Vec<String>) -> Vec<(String, bool)>;

    /// Stores a token and revokes the cluster's unredeemed older ones.
    issue_join_token(&self, token: JoinToken) -> ();
    join_token(&self, id: &str) -> Option<JoinToken>;
    /// Decides by [`crate::hub::registration::redeem`] and does it, in one transaction.
    redeem(&self, claim: Claim, now: OffsetDateTime) -> Redeemed;

    /// Facts, steps and conditions of each of these clusters, in the same order.
    details(&self, ids: &[String]) -> Vec<Details>;
    /// One fact of each of these clusters, in the same order.
    fact(&self, ids: &[String], key: &str) -> Vec<Option<String>>;
    /// Takes in a report, heals included: all of them are stored now but open ones beyond those that a cluster may have, and its
    /// condition `HealsTaken` is False while there are any. Of those that are over so many are kept, the newest.
    report(&self, cluster_id: &str, reported: Reported, now: OffsetDateTime) -> Stored;
    /// How many heals of each class are not over, in clusters that are not removed.
    faults(&self) -> Vec<(String, i64)>;
    /// The clusters that were heard of, and what their agents acted on since: by the times of the acts, whenever they were told.
    acted(&self, since: OffsetDateTime) -> crate::hub::incident::Seen;
    /// The keys that clusters are told of a Git host.
    host_keys(&self, githost: &str) -> Vec<crate::hub::githost::hostkeys::TrustedKey>;
    /// Puts these keys in place of those; false = there were others by now, and nothing changed.
    change_host_keys(&self, githost: &str, before: Vec<crate::hub::githost::hostkeys::TrustedKey>, after: Vec<crate::hub::githost::hostkeys::TrustedKey>) -> bool;
    /// Keys of which one has to have signed the catalog's head, in the order in which they came; none = nothing is verified.
    signers(&self) -> Vec<crate::hub::signers::Signer>;
    /// Puts these keys in place of those; false = there were others by now, and nothing changed.
    change_signers(&self, before: Vec<crate::hub::signers::Signer>, after: Vec<crate::hub::signers::Signer>) -> bool;
    /// What living clusters say of host keys, by name.
    host_key_reports(&self) -> Vec<HostKeysOf>;
    /// Sets a condition that the hub itself sees.
    set_condition(&self, cluster_id: &str, condition: Condition, now: OffsetDateTime) -> ();
    /// Of clusters that have an identity in force, ends the conflicts in which nobody was refused since `before`; gives how many.
    end_conflicts(&self, before: OffsetDateTime) -> u64;
    /// Newest first, those before the id `before`, of one cluster or all.
    heals(&self, cluster_id: Option<&str>, before: Option<&str>, limit: u32) -> Vec<(ClusterName, HealRecord)>;
    /// The same, of living clusters those that are not over.
    heals_not_over(&self, cluster_id: Option<&str>, before: Option<&str>, limit: u32) -> Vec<(ClusterName, HealRecord)>;
    heal(&self, id: &str) -> Option<(ClusterName, HealRecord)>;
    /// Puts this record in place of one that is not over; false = it is over, and stays as it is.
    close_heal(&self, heal: HealRecord, now: OffsetDateTime) -> bool;

    /// Heals of living clusters that are not over, oldest first, within bounds; without their steps and scenes.
    open_heals(&self) -> Vec<(ClusterName, HealRecord)>;
    /// The newest heal of this class of each living cluster that has one whose end was not seen: it is open, or was closed
    /// by hand.
    last_unrestored(&self, class: &str) -> Vec<(ClusterName, HealRecord)>;
    /// Heals of this class of living clusters that are open, and the newest of each cluster where it was closed by hand; by
    /// cluster, oldest first.
    unrestored(&self, class: &str) -> Vec<Unrestored>;
    /// Stores a heal of which the hub itself tells, or what became of it.
    note_heal(&self, cluster_id: &str, heal: HealRecord, now: OffsetDateTime) -> ();
    /// Why the copy of the cluster's agent in the catalog is not renewed.
    copy_trouble(&self, cluster_id: &str) -> Option<String>;
    /// The ids of the clusters of whose copies that is known.
    copy_troubles(&self) -> Vec<String>;
    /// None = it is over.
    set_copy_trouble(&self, cluster_id: &str, trouble: Option<&str>) -> ();
    /// Troubles that people were told of, as [`crate::hub::notify`] encodes them.
    troubles(&self) -> Vec<(TroubleKey, String)>;
    change_troubles(&self, put: Vec<(TroubleKey, String)>, gone: Vec<TroubleKey>) -> ();

    /// Makes the user where there is none of that name; gives it either way.
    [access] ensure_user(&self, user: UserRow) -> UserRow;
    /// A user of a free name, or of one that was removed.
    [access] add_user(&self, user: UserRow, now: OffsetDateTime) -> UserRow;
    /// Sets roles and groups, if the user is still as `user.rev` says.
    [access] set_user(&self, user: UserRow, now: OffsetDateTime) -> Ended;
    /// Disables the user, if it is still of this revision, and ends its tokens, SSH keys and own grants, in one transaction.
    [access] remove_user(&self, of: Revision<'_>, now: OffsetDateTime) -> Ended;
    /// One who is not disabled.
    user(&self, name: &str) -> Option<UserRow>;
    /// Also finds those who are.
    user_by_id(&self, id: &str) -> Option<UserRow>;
    /// Stores a token, within bounds of each user's and of all; the same key of the same maker again gives the token that is
    /// there the new secret. What ended 30 days before is forgotten.
    [access] add_api_token(&self, token: ApiToken, key: Option<String>) -> ApiToken;
    /// A token with its user, whatever their state.
    api_token(&self, id: &str) -> Option<(ApiToken, UserRow)>;
    /// In force, of one user or all, each with its user's name.
    api_tokens(&self, user_id: Option<&str>, now: OffsetDateTime) -> Vec<(ApiToken, String)>;
    [access] revoke_api_token(&self, id: &str, now: OffsetDateTime) -> Ended;
    /// Tokens in force that make their holder an admin; one whose user nobody vouched for within [`Store::vouched_within`] does not.
    live_admin_tokens(&self, now: OffsetDateTime) -> u32;
    /// All users who are not disabled.
    users(&self) -> Vec<UserRow>;
    /// Those of these ids, whether they are disabled or not.
    users_of(&self, ids: &[String]) -> Vec<UserRow>;
    /// What [`Self::arrive`] would make of them now; nothing is changed.
    would_arrive(&self, arrival: Arrival, now: OffsetDateTime) -> Known;
    /// Takes in whom a provider vouches for: a new user, or changes of one who is known by the subject.
    [access] arrive(&self, arrival: Arrival, now: OffsetDateTime) -> Known;
    [access] add_session(&self, session: Session, remote: &str, pair: Pair, now: OffsetDateTime) -> ();
    /// A pair with its session and user, whatever their state.
    session_token(&self, id: &str) -> Option<(SessionToken, Session, UserRow)>;
    session(&self, id: &str) -> Option<(Session, UserRow)>;
    /// Those that did not end.
    sessions_of(&self, user_id: &str) -> Vec<Session>;
    /// Keeps a login that is under way; where there are too many, the oldest of the address that has its share or the most goes.
    add_waiting(&self, waiting: Waiting, bounds: Bounds, now: OffsetDateTime) -> ();
    /// Gives one of them away, once; one that a browser began, to that browser only.
    take_waiting(&self, kind: WaitingKind, key: [u8; 32], browser: Option<[u8; 32]>, now: OffsetDateTime) -> Option<Waiting>;
    /// The device that waits with a code that somebody typed at this address. Wrong ones are counted, and end within bounds.
    guess_device(&self, user_code: [u8; 32], address: &str, now: OffsetDateTime) -> Result<Waiting, Wrong>;
    /// Lets a device in or not, if nobody did yet; false = it does not wait any more.
    decide_device(&self, key: [u8; 32], decision: Decision, now: OffsetDateTime) -> bool;
    /// Decides by [`crate::hub::login::pending::next`] what a device is told, and does it, in one transaction.
    ask_device(&self, key: [u8; 32], now: OffsetDateTime) -> Asked;
    /// Has the session to itself for so long from now on, by the database's clock, which only one has; `by` is who.
    take_turn(&self, session: &str, by: &str, lasts: std::time::Duration) -> bool;
    end_turn(&self, session: &str, by: &str) -> ();
    /// Of each user of this provider who has API tokens in force or SSH keys, the session by which the provider can be asked, where
    /// it was not asked by any since then; the one that waits longest comes first. A time after `now` counts as the oldest.
    sessions_due(&self, issuer: &str, asked_before: OffsetDateTime, now: OffsetDateTime, limit: u32) -> Vec<String>;
    /// Whether the provider vouched for the session's user until now and can be asked by no other session of theirs.
    is_last_to_ask_by(&self, session: &str, now: OffsetDateTime) -> bool;
    /// Notes that the provider vouches for the session's user no more, until it does; false = it can be asked by another session,
    /// or this was known.
    [access] refuse_user(&self, session: &str, now: OffsetDateTime) -> bool;
    /// Notes that the provider was asked now, and what it gave for the next time.
    [access] asked_provider(&self, id: &str, sealed: Option<Vec<u8>>, now: OffsetDateTime) -> ();
    /// Marks a pair as used and stores the next one; false = the session has ended.
    [access] rotate(&self, used: &str, pair: Pair, idle_until: OffsetDateTime, now: OffsetDateTime) -> bool;
    /// False = it had ended before.
    [access] end_session(&self, id: &str, why: &str, now: OffsetDateTime) -> bool;
    /// Ends all of a user that have not ended, and gives their ids.
    [access] end_sessions(&self, user_id: &str, why: &str, now: OffsetDateTime) -> Vec<String>;
    /// Lets the user push with this key; the same key again changes nothing. None = someone else has it.
    add_ssh_key(&self, key: SshKey) -> Option<SshKey>;
    /// Of one user or all, each with its user's name.
    ssh_keys(&self, user_id: Option<&str>) -> Vec<(SshKey, String)>;
    /// False = it was gone before.
    remove_ssh_key(&self, id: &str) -> bool;
    ssh_key_by_fingerprint(&self, fingerprint: &str) -> Option<(SshKey, UserRow)>;

    /// Stores a grant; the same key of the same giver again gives the grant that is there.
    [access] add_grant(&self, grant: Grant, key: Option<String>, now: OffsetDateTime) -> Grant;
    /// Stores the grant that a new hub has, once in the hub's life.
    [access] ensure_default_grant(&self, grant: Grant) -> ();
    /// Grants of these subjects (`user:ada`, `group:sre`) that are not revoked; they may have ended.
    grants_of(&self, subjects: &[String]) -> Vec<Grant>;
    /// All that are not revoked, in the order of their ids, those behind `after`.
    grants(&self, after: Option<&str>, limit: u32) -> Vec<Grant>;
    /// Grants of these subjects that were revoked lately, the last one first. None of somebody who was removed since, whoever has the
    /// name now.
    revoked_grants_of(&self, subjects: &[String], limit: u32) -> Vec<Grant>;
    /// All that were revoked or whose end has passed, as far as they are kept, in the order of their ids, those behind `after`.
    ended_grants(&self, after: Option<&str>, limit: u32, now: OffsetDateTime) -> Vec<Grant>;
    /// One that is not revoked.
    grant(&self, id: &str) -> Option<Grant>;
    /// False = it was revoked before, never there, or is of another revision by now.
    [access] revoke_grant(&self, of: Revision<'_>, by: &str, now: OffsetDateTime) -> bool;
    /// When the next of them ends.
    next_grant_end(&self, now: OffsetDateTime) -> Option<OffsetDateTime>;

    /// Notes a POST under its Idempotency-Key for 24 hours; gives what the key came with before, if it did.
    idempotent(&self, user_id: &str, key: &str, digest: [u8; 32], now: OffsetDateTime) -> Option<[u8; 32]>;
    /// The same for a call whose answer is kept beside its key; of several at the same time, one is the first.
    begin_call(&self, call: &Call, now: OffsetDateTime) -> Called;
    /// Keeps what the call was answered; None = it was refused, and may come again.
    end_call(&self, call: &Call, answer: Option<String>) -> ();
    /// Ends a call of which nobody knows whether it is done: it may come again if it stored nothing.
    lose_call(&self, call: &Call) -> ();

    /// The same digest again changes nothing; one that was removed is there again.
    add_bundle(&self, bundle: NewBundle, now: OffsetDateTime) -> BundleView;
    /// The last import first.
    bundles(&self) -> Vec<BundleView>;
    bundle(&self, digest: &Digest) -> Option<BundleView>;
    /// What is known of one that was removed: all but its content.
    removed_bundle(&self, digest: &Digest) -> Option<BundleView>;
    /// The bundle as it is served (zstd).
    bundle_data(&self, digest: &Digest) -> Option<Vec<u8>>;
    bundle_use(&self, digest: &Digest) -> BundleUse;
    /// Removes it, unless a living cluster is to run it; false = one is, or it is not there.
    remove_bundle(&self, digest: &Digest, now: OffsetDateTime) -> bool;

    /// Appends rows that were chained by [`crate::hub::audit`]; safe over a crash of the process. [`StoreError::OtherEnd`] where they do
    /// not follow on the last row of a server.
    append_audit(&self, rows: &[AuditRow]) -> ();
    /// Chains rows to the last one, or to `floor` where there is none, and appends them, as one of several that do so: `writer`
    /// says which. A close of what has one already is left out; its number stays 0. One whose open the database lost names none.
    extend_audit(&self, floor: crate::hub::audit::chain::Head, rows: &mut [AuditRow], writer: &str) -> ();
    /// The last row.
    audit_head(&self) -> Option<AuditRow>;
    /// Opens that have no close, oldest first.
    audit_open(&self) -> Vec<AuditRow>;
    /// The same of replicas that are forgotten.
    audit_abandoned(&self) -> Vec<AuditRow>;
    /// The record of that number, once no append is under way: what was to be committed then is there, or never will be.
    audit_settled(&self, seq: i64) -> Option<AuditRow>;
    /// In order, those behind `after`.
    audit(&self, after: i64, cluster: Option<&str>, limit: u32) -> Vec<AuditRow>;
    /// The lines of [`crate::hub::audit::chain::Hashed::read`], those behind `after`, as they are stored: at most so many,
    /// fewer where they are long, none only at the end.
    audit_lines(&self, after: i64, limit: u32) -> Vec<u8>;
    /// Those that a query asks for, of at most [`LOOKED_AT`] records that an index does not tell apart.
    audit_query(&self, query: &AuditQuery) -> AuditPage;
    /// The records of the ends of such requests, the newest first: of the cluster's newest [`LOOKED_AT`] of that time, and at most 500.
    audit_writes(&self, of: &AuditWrites) -> Vec<AuditRow>;
    /// The number of the last record from before a time, 0 = none.
    audit_before(&self, at: OffsetDateTime) -> i64;
    /// The number of the last record beyond the newest ones that fit into these bytes; 0 or one that is gone = none.
    audit_over(&self, bytes: u64) -> i64;
    /// In the order of their records.
    audit_anchors(&self) -> Vec<Anchor>;
    add_audit_anchor(&self, anchor: &Anchor) -> ();
    /// Puts another signature under the anchor at which the chain begins.
    sign_audit_start(&self, anchor: &Anchor) -> ();
    /// Those of records behind `after` up to this one, in order.
    audit_anchors_between(&self, after: i64, up_to: i64, limit: u32) -> Vec<Anchor>;
    /// Removes records up to a start anchor, which is below the last one, and the anchors below it. Opens among them that have no
    /// close are written again at the chain's end, in the same transaction.
    prune_audit(&self, anchor: &Anchor) -> Pruned;
    /// The last record that a sink has taken; None = it has not begun.
    audit_position(&self, sink: &str) -> Option<i64>;
    set_audit_position(&self, sink: &str, seq: i64) -> ();
    /// The names of all sinks that ever began.
    audit_sinks(&self) -> Vec<String>;
    /// Gives a sink another name; where that has a position already, it goes on from the later one.
    rename_audit_sink(&self, from: &str, to: &str) -> ();
    /// The newest rows, in order.
    audit_tail(&self, cluster: Option<&str>, limit: u32) -> Vec<AuditRow>;

    /// Counts the replica among the live ones for so long from now on; those whose lease ended long ago are forgotten.
    renew_replica(&self, replica: &Replica, ttl: std::time::Duration) -> ();
    /// Those whose lease holds, in the order of their ids.
    replicas(&self) -> Vec<Replica>;
    /// Notes how this replica says that the hub is reached.
    tell_urls(&self, id: &str, urls: &str) -> ();
    /// How those whose lease holds are reached, in the order of their ids.
    reaches(&self) -> Vec<Reach>;
    /// Forgets the replica, and what lines it had.
    leave_replica(&self, id: &str) -> ();
    /// Notes where the cluster's line is; false = a newer one is known, or the cluster was removed.
    put_line(&self, line: &LineRow) -> bool;
    /// Notes that this line ended; another one of the cluster stays.
    drop_line(&self, cluster_id: &str, epoch: u64) -> ();
    /// The line of a living cluster, if the lease of its replica holds.
    line_of(&self, cluster: &ClusterName) -> Option<Located>;
    /// All of them, in the order of the clusters' names.
    lines(&self) -> Vec<(ClusterName, Located)>;
    /// Makes good what [`Store::put_line`] and [`Store::drop_line`] could not store: `held` are the newest lines of each of
    /// the replica's clusters. Gives those of which a newer one is known, or whose cluster was removed.
    keep_lines(&self, replica: &str, held: Vec<LineRow>) -> Vec<LineRow>;
    /// What replicas have changed so far.
    changes(&self) -> Changes;
    /// Leaves a text for the other replicas, or takes it back.
    note(&self, what: Noted, text: Option<String>) -> ();
    noted(&self, what: Noted) -> Option<String>;
    /// The numbers of the assignments of those of these clusters that live.
    revisions(&self, clusters: Vec<String>) -> Vec<(String, u64)>;
}
