//! Where the changes are in a source file, and what is put there so that each can be made while the program runs.
//!
//! In what is put there `crate::changed` tells which change is made; see `changed.rs`. An operator changes with the operands
//! that it has: where cargo-mutants makes `a || b && c` of `a && b && c`, this makes `(a || b) && c`.

mod shape;

use std::collections::HashMap;
use std::mem;
use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    BinOp, Block, Expr, ExprBinary, ExprConst, ExprMatch, ExprStruct, ExprUnary, FieldValue,
    ImplItemConst, ImplItemFn, ItemConst, ItemFn, ItemStatic, Member, Pat, Signature,
    TraitItemConst, TraitItemFn, UnOp,
};

use crate::edit::{Edit, Part};
use crate::list::{Change, Genre};
use shape::Output;

const KEPT: &str = "crate::changed::Either::Kept(";

/// What can be woven; whatever is in neither list cannot.
#[derive(Default)]
pub struct Found {
    pub edits: Vec<Edit>,
    /// Changes that are no Rust at all.
    pub unviable: Vec<u32>,
}

/// Finds these changes, which are given with their numbers.
pub fn find<'a>(
    source: &'a str,
    changes: impl IntoIterator<Item = (u32, &'a Change)>,
) -> syn::Result<Found> {
    let file = syn::parse_file(source)?;
    let mut wanted: HashMap<_, Wanted<'a>> = HashMap::new();
    for (number, change) in changes {
        let start = &change.span.start;
        let key = (change.genre, start.line, start.column);
        let same = wanted.entry(key).or_default();
        same.push((number, change.replacement.as_str()));
    }
    let mut finder = Finder {
        source,
        wanted,
        constant: false,
        found: Found::default(),
    };
    finder.visit_file(&file);
    Ok(finder.found)
}

/// The numbers of changes at one place, and what stands there instead.
type Wanted<'a> = Vec<(u32, &'a str)>;

struct Finder<'a> {
    source: &'a str,
    /// By genre, line and column.
    wanted: HashMap<(Genre, usize, usize), Wanted<'a>>,
    /// Whether this is evaluated by the compiler, which cannot ask what is changed.
    constant: bool,
    found: Found,
}

impl<'a> Finder<'a> {
    fn take(&mut self, genre: Genre, span: Span) -> Wanted<'a> {
        let start = span.start();
        let wanted = self.wanted.remove(&(genre, start.line, start.column + 1));
        if self.constant {
            return Wanted::new();
        }
        wanted.unwrap_or_default()
    }

    fn put(&mut self, place: Range<usize>, changes: Vec<u32>, parts: Vec<Part>) {
        if parts.iter().all(Part::is_found) {
            self.found.edits.push(Edit {
                place,
                changes,
                parts,
            });
        }
    }

    /// Visits what has to be, or does not have to be, constant.
    fn within(&mut self, constant: bool, visit: impl FnOnce(&mut Self)) {
        let before = mem::replace(&mut self.constant, constant);
        visit(self);
        self.constant = before;
    }

    fn function(&mut self, whole: Range<usize>, sig: &Signature, block: &Block) {
        self.put(whole.clone(), Vec::new(), vec![Part::Woven(whole)]);
        let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) else {
            return;
        };
        let wanted = self.take(Genre::FnValue, first.span());
        let body = place(first).start..place(last).end;
        match shape::output(&sig.output) {
            Output::Plain => self.early(body.start, &wanted),
            Output::Iterator if !shape::returns(block) => self.either(body, &wanted),
            Output::Iterator | Output::Hidden => {}
        }
    }

    /// Returns the value of the change before anything is done.
    fn early(&mut self, at: usize, wanted: &Wanted<'a>) {
        for (number, value) in wanted {
            let parts = vec![
                text(format!("if crate::changed::is({number}) {{ return ")),
                Part::Own(*number, vec![text(*value)]),
                text("; } "),
            ];
            self.put(at..at, vec![*number], parts);
        }
    }

    /// The same where each value is an iterator of another type.
    fn either(&mut self, body: Range<usize>, wanted: &Wanted<'a>) {
        let mut parts = Vec::new();
        for (depth, (number, value)) in wanted.iter().enumerate() {
            let kept = KEPT.repeat(depth);
            parts.push(text(format!(
                "if crate::changed::is({number}) {{ return {kept}crate::changed::Either::Changed("
            )));
            parts.push(Part::Own(*number, vec![text(*value)]));
            parts.push(text(format!("{}; }} ", ")".repeat(depth + 1))));
        }
        parts.push(text(format!("{}{{ ", KEPT.repeat(wanted.len()))));
        parts.push(Part::Woven(body.clone()));
        parts.push(text(format!(" }}{}", ")".repeat(wanted.len()))));
        if !wanted.is_empty() {
            self.put(body, numbers(wanted), parts);
        }
    }

    fn binary(&mut self, i: &ExprBinary, wanted: &Wanted<'a>) {
        let only = |by: &str| matches!(wanted[..], [(_, one)] if one == by);
        match i.op {
            BinOp::And(_) if shape::has_let(&i.left) || shape::has_let(&i.right) => {
                self.found.unviable.extend(numbers(wanted));
            }
            BinOp::Eq(_) if only("!=") => self.flipped(place(i), wanted),
            BinOp::Ne(_) if only("==") => self.flipped(place(i), wanted),
            BinOp::And(_) if only("||") => {
                let end = format!(") }} else {{ crate::changed::is({}) }})", wanted[0].0);
                self.lazy(i, wanted, ") { (".to_owned(), end);
            }
            BinOp::Or(_) if only("&&") => {
                let middle = format!(") {{ !crate::changed::is({}) }} else {{ (", wanted[0].0);
                self.lazy(i, wanted, middle, ") })".to_owned());
            }
            _ => {
                let (left, right) = (place(&i.left), place(&i.right));
                let other = |operator: &str| {
                    vec![
                        text("("),
                        Part::Kept(left.clone()),
                        text(format!(") {operator} (")),
                        Part::Kept(right.clone()),
                        text(")"),
                    ]
                };
                let own = |(number, operator): &(u32, &str)| {
                    (*number, vec![Part::Own(*number, other(operator))])
                };
                self.chosen(place(i), "", wanted.iter().map(own).collect());
            }
        }
    }

    /// `&&` and `||`: whether the right operand is asked depends on the change too.
    fn lazy(&mut self, i: &ExprBinary, wanted: &Wanted<'a>, middle: String, end: String) {
        let parts = vec![
            text(format!("(if crate::changed::flip({}, ", wanted[0].0)),
            Part::Woven(place(&i.left)),
            Part::Text(middle),
            Part::Woven(place(&i.right)),
            Part::Text(end),
        ];
        self.put(place(i), numbers(wanted), parts);
    }

    /// A bool that is its opposite with any of the changes.
    fn flipped(&mut self, whole: Range<usize>, wanted: &Wanted<'a>) {
        let flip = |(number, _): &(u32, &str)| format!("crate::changed::flip({number}, ");
        let parts = vec![
            Part::Text(wanted.iter().map(flip).collect()),
            Part::Woven(whole.clone()),
            text(")".repeat(wanted.len())),
        ];
        self.put(whole, numbers(wanted), parts);
    }

    /// The expression or one of the others. What else can be changed inside it is woven once only: one change is made at a time.
    fn chosen(&mut self, whole: Range<usize>, before: &str, others: Vec<(u32, Vec<Part>)>) {
        let changes: Vec<u32> = others.iter().map(|(number, _)| *number).collect();
        let mut parts = vec![
            text(format!(
                "{before}(match crate::changed::which(&{changes:?}) {{ 0 => ("
            )),
            Part::Woven(whole.clone()),
            text(")"),
        ];
        for (number, other) in others {
            let last = changes.last() == Some(&number);
            let pattern = if last {
                "_".to_owned()
            } else {
                number.to_string()
            };
            parts.push(text(format!(", {pattern} => ")));
            parts.extend(other);
        }
        parts.push(text(" })"));
        self.put(whole, changes, parts);
    }

    fn guard(&mut self, guard: &Expr) {
        let (mut open, mut close, mut changes) = (String::new(), String::new(), Vec::new());
        for (number, value) in self.take(Genre::MatchArmGuard, guard.span()) {
            let (before, after) = match (value, shape::has_let(guard)) {
                ("true", false) => (format!("(crate::changed::is({number}) || ("), "))"),
                ("false", false) => (format!("(!crate::changed::is({number}) && ("), "))"),
                ("false", true) => (format!("!crate::changed::is({number}) && "), ""),
                _ => continue,
            };
            open += &before;
            close += after;
            changes.push(number);
        }
        if !changes.is_empty() {
            let parts = vec![text(open), Part::Woven(place(guard)), text(close)];
            self.put(place(guard), changes, parts);
        }
    }

    /// A field that is that of the base with the change.
    fn field(&mut self, i: &ExprStruct, field: &FieldValue, base: &Expr) {
        let wanted = self.take(Genre::StructField, field.span());
        let Member::Named(name) = &field.member else {
            return;
        };
        let base = &self.source[place(base)];
        let base = match base {
            // Nothing tells its type here.
            "Default::default()" => format!("<{}>::default()", &self.source[place(&i.path)]),
            _ => format!("({base})"),
        };
        let other = |number: u32| (number, vec![text(format!("{base}.{name}"))]);
        let short = field.colon_token.is_none();
        let before = short.then(|| format!("{name}: ")).unwrap_or_default();
        if !wanted.is_empty() {
            let others = numbers(&wanted).into_iter().map(other).collect();
            self.chosen(place(&field.expr), &before, others);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, i: &'ast ItemFn) {
        self.within(i.sig.constness.is_some(), |finder| {
            finder.function(place(i), &i.sig, &i.block);
            visit::visit_item_fn(finder, i);
        });
    }

    fn visit_impl_item_fn(&mut self, i: &'ast ImplItemFn) {
        self.within(i.sig.constness.is_some(), |finder| {
            finder.function(place(i), &i.sig, &i.block);
            visit::visit_impl_item_fn(finder, i);
        });
    }

    fn visit_trait_item_fn(&mut self, i: &'ast TraitItemFn) {
        self.within(i.sig.constness.is_some(), |finder| {
            if let Some(block) = &i.default {
                finder.function(place(i), &i.sig, block);
            }
            visit::visit_trait_item_fn(finder, i);
        });
    }

    fn visit_item_const(&mut self, i: &'ast ItemConst) {
        self.within(true, |finder| visit::visit_item_const(finder, i));
    }

    fn visit_item_static(&mut self, i: &'ast ItemStatic) {
        self.within(true, |finder| visit::visit_item_static(finder, i));
    }

    fn visit_impl_item_const(&mut self, i: &'ast ImplItemConst) {
        self.within(true, |finder| visit::visit_impl_item_const(finder, i));
    }

    fn visit_trait_item_const(&mut self, i: &'ast TraitItemConst) {
        self.within(true, |finder| visit::visit_trait_item_const(finder, i));
    }

    fn visit_expr_const(&mut self, i: &'ast ExprConst) {
        self.within(true, |finder| visit::visit_expr_const(finder, i));
    }

    fn visit_expr_binary(&mut self, i: &'ast ExprBinary) {
        let wanted = self.take(Genre::BinaryOperator, i.op.span());
        if !wanted.is_empty() {
            self.binary(i, &wanted);
        }
        visit::visit_expr_binary(self, i);
    }

    fn visit_expr_unary(&mut self, i: &'ast ExprUnary) {
        let wanted = self.take(Genre::UnaryOperator, i.op.span());
        match i.op {
            UnOp::Not(_) if !wanted.is_empty() => self.flipped(place(i), &wanted),
            UnOp::Neg(_) if !wanted.is_empty() => {
                let bare = || vec![text("("), Part::Kept(place(&i.expr)), text(")")];
                let own = |number| (number, vec![Part::Own(number, bare())]);
                let others = numbers(&wanted).into_iter().map(own).collect();
                self.chosen(place(i), "", others);
            }
            _ => {}
        }
        visit::visit_expr_unary(self, i);
    }

    fn visit_expr_match(&mut self, i: &'ast ExprMatch) {
        let rest = |arm: &syn::Arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none();
        let complete = i.arms.iter().any(rest);
        for arm in &i.arms {
            let deleted = self.take(Genre::MatchArm, arm.span());
            if let Some((_, guard)) = &arm.guard {
                self.guard(guard);
            } else if complete {
                let end = place(&arm.pat).end;
                for (number, _) in deleted {
                    let guard = text(format!(" if !crate::changed::is({number})"));
                    self.put(end..end, vec![number], vec![guard]);
                }
            }
        }
        visit::visit_expr_match(self, i);
    }

    fn visit_expr_struct(&mut self, i: &'ast ExprStruct) {
        if let Some(base) = &i.rest {
            let before = self.found.edits.len();
            for field in &i.fields {
                self.field(i, field, base);
            }
            let fields = self.found.edits[before..].iter();
            let changes: Vec<u32> = fields.flat_map(|edit| edit.changes.clone()).collect();
            // The base is used once more: what the compiler has against that, it says at the base.
            if !changes.is_empty() {
                self.put(place(i), changes, vec![Part::Woven(place(i))]);
            }
        }
        visit::visit_expr_struct(self, i);
    }
}

fn place(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

fn text(text: impl Into<String>) -> Part {
    Part::Text(text.into())
}

fn numbers(wanted: &Wanted<'_>) -> Vec<u32> {
    wanted.iter().map(|(number, _)| *number).collect()
}
