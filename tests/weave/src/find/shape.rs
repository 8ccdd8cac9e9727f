//! What decides how a change is woven.

use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprClosure, ExprReturn, Item, ReturnType, Type, TypeImplTrait};

/// What a function gives.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// A type with a name.
    Plain,
    /// `impl Iterator`: cargo-mutants has values for no other trait.
    Iterator,
    /// Another one in which `impl` occurs.
    Hidden,
}

pub fn output(output: &ReturnType) -> Output {
    struct Impl(bool);
    impl Visit<'_> for Impl {
        fn visit_type_impl_trait(&mut self, _: &TypeImplTrait) {
            self.0 = true;
        }
    }
    let mut within = Impl(false);
    within.visit_return_type(output);
    match output {
        ReturnType::Type(_, of) if matches!(**of, Type::ImplTrait(_)) => Output::Iterator,
        _ if within.0 => Output::Hidden,
        _ => Output::Plain,
    }
}

/// Whether the function has a `return` of its own.
pub fn returns(block: &Block) -> bool {
    struct Return(bool);
    impl Visit<'_> for Return {
        fn visit_expr_return(&mut self, i: &ExprReturn) {
            self.0 = true;
            visit::visit_expr_return(self, i);
        }

        fn visit_expr_closure(&mut self, _: &ExprClosure) {}

        fn visit_item(&mut self, _: &Item) {}
    }
    let mut within = Return(false);
    within.visit_block(block);
    within.0
}

/// Whether a condition is a chain with a `let` in it, which stands in no parentheses and beside no `||`.
pub fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
        _ => false,
    }
}
