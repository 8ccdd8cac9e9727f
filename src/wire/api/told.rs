//! The hub's views as a reader has them, who may be a version behind: a word of tomorrow fails no answer, and is shown.

use super::super::report::{
    Condition, ConditionType, HealRecord, HealResult, Phase, Status, StepName, StepReport,
    StepState,
};
use super::super::word::Word;
use super::{
    AdoptionAnswer, BundleView, ClusterView, EngineKind, GitHostCluster, GitHostView, GitRoute,
    GitRouteView, HealView, Via,
};

pub type ToldCluster =
    ClusterView<Word<Phase>, Word<EngineKind>, ToldGitRoute, ToldStep, ToldCondition>;
pub type ToldAdoption = AdoptionAnswer<ToldCluster>;
pub type ToldGitRoute = GitRouteView<Word<GitRoute>, Word<Via>>;
pub type ToldGitHost = GitHostView<Word<GitRoute>, Word<Via>>;
pub type ToldGitHostCluster = GitHostCluster<Word<GitRoute>, Word<Via>>;
pub type ToldStep = StepReport<Word<StepName>, Word<StepState>>;
pub type ToldCondition = Condition<Word<ConditionType>, Word<Status>>;
pub type ToldBundle = BundleView<Word<EngineKind>>;
pub type ToldHeal = HealView<Word<HealResult>>;
pub type ToldHealRecord = HealRecord<Word<HealResult>>;
