//! The changes of a file: the part that each concerns, and the text that makes it possible to switch it on.

use std::collections::BTreeSet;

use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ReturnType, Type};

use crate::edits::Edits;

/// One change.
pub struct Change {
    pub number: usize,
    /// The first and the last line of the part that changes.
    pub lines: (usize, usize),
    pub function: String,
    pub text: String,
}

/// All changes of a file.
pub struct Changes<'a> {
    pub edits: Edits,
    pub list: Vec<Change>,
    /// The number of the next change.
    pub next: usize,
    skipped: &'a BTreeSet<usize>,
    function: String,
}

impl<'a> Changes<'a> {
    /// Returns the changes of a file, numbered from `first`.
    pub fn of(file: &syn::File, first: usize, skipped: &'a BTreeSet<usize>) -> Changes<'a> {
        let mut changes = Changes {
            edits: Edits::default(),
            list: Vec::new(),
            next: first,
            skipped,
            function: String::new(),
        };
        changes.visit_file(file);
        changes
    }

    /// Gives a change its number, and returns the condition that it is on. `None`: it is left out.
    fn add(&mut self, span: Span, text: String) -> Option<String> {
        let number = self.next;
        self.next += 1;
        if self.skipped.contains(&number) {
            return None;
        }
        let lines = (span.start().line, span.end().line);
        self.list.push(Change {
            number,
            lines,
            function: self.function.clone(),
            text,
        });
        Some(format!("crate::changes::active({number})"))
    }

    /// A function returns at once.
    fn returns(&mut self, output: &ReturnType, block: &syn::Block) {
        let values = match output {
            ReturnType::Default => vec![String::new()],
            ReturnType::Type(_, of) => values(of),
        };
        // An empty function has nothing to leave out.
        if block.stmts.is_empty() {
            return;
        }
        let place = block.brace_token.span.open().byte_range().end;
        let only = match block.stmts.as_slice() {
            [syn::Stmt::Expr(only, None)] => only.to_token_stream().to_string().replace(' ', ""),
            _ => String::new(),
        };
        for value in values
            .into_iter()
            .filter(|value| value.replace(' ', "") != only)
        {
            if let Some(active) = self.add(block.span(), format!("returns {value} at once")) {
                self.edits
                    .insert(place, format!(" if {active} {{ return {value}; }}"));
            }
        }
    }

    /// A condition is always true, or always false.
    fn condition(&mut self, condition: &Expr) {
        if matches!(condition, Expr::Lit(_))
            || contains_let(condition)
            || contains_mutant(condition)
        {
            return;
        }
        let shown = shown(condition);
        if let Some(active) = self.add(condition.span(), format!("`{shown}` is true")) {
            self.edits.surround(
                condition.span().byte_range(),
                format!("({active} || ("),
                "))".into(),
            );
        }
        if let Some(active) = self.add(condition.span(), format!("`{shown}` is false")) {
            self.edits.surround(
                condition.span().byte_range(),
                format!("(!{active} && ("),
                "))".into(),
            );
        }
    }

    /// An operator is another one.
    fn operator(&mut self, expression: &syn::ExprBinary) {
        let (old, new) = match expression.op {
            BinOp::Add(_) => ("+", "-"),
            BinOp::Sub(_) => ("-", "+"),
            BinOp::Mul(_) => ("*", "+"),
            BinOp::Div(_) => ("/", "*"),
            BinOp::Rem(_) => ("%", "/"),
            BinOp::BitAnd(_) => ("&", "|"),
            BinOp::BitOr(_) => ("|", "&"),
            BinOp::BitXor(_) => ("^", "|"),
            BinOp::Shl(_) => ("<<", ">>"),
            BinOp::Shr(_) => (">>", "<<"),
            BinOp::Eq(_) => ("==", "!="),
            BinOp::Ne(_) => ("!=", "=="),
            BinOp::Lt(_) => ("<", "<="),
            BinOp::Le(_) => ("<=", "<"),
            BinOp::Gt(_) => (">", ">="),
            BinOp::Ge(_) => (">=", ">"),
            BinOp::And(_) => ("&&", "||"),
            BinOp::Or(_) => ("||", "&&"),
            _ => return,
        };
        if contains_let(&expression.left) || contains_let(&expression.right) {
            return;
        }
        let text = format!("{new} in place of {old} in `{}`", shown(expression));
        let Some(active) = self.add(expression.span(), text) else {
            return;
        };
        let (before, between, after) = match old {
            "&&" | "||" => {
                let relation = if old == "&&" { "!=" } else { "==" };
                (
                    "({ let l: bool = ",
                    format!("; if l {relation} {active} {{ "),
                    " } else { l } })".to_string(),
                )
            }
            "==" | "!=" | "<" | "<=" | ">" | ">=" => (
                "(match (&(",
                "), &(".to_string(),
                format!(")) {{ (l, r) => if {active} {{ *l {new} *r }} else {{ *l {old} *r }} }})"),
            ),
            _ => (
                "(match ((",
                "), (".to_string(),
                format!(")) {{ (l, r) => if {active} {{ l {new} r }} else {{ l {old} r }} }})"),
            ),
        };
        self.edits
            .surround(expression.span().byte_range(), before.into(), after);
        self.edits
            .replace(expression.op.span().byte_range(), between);
    }

    /// A statement is left out.
    fn omission(&mut self, statement: &syn::Stmt) {
        let syn::Stmt::Expr(expression, Some(_)) = statement else {
            return;
        };
        let mut inner = expression;
        while let Expr::Try(of) = inner {
            inner = &of.expr;
        }
        let changes = match inner {
            Expr::MethodCall(_) | Expr::Call(_) | Expr::Assign(_) => true,
            Expr::Binary(of) => is_assignment(&of.op),
            _ => false,
        };
        if changes
            && let Some(active) =
                self.add(statement.span(), format!("without `{}`", shown(expression)))
        {
            self.edits.surround(
                statement.span().byte_range(),
                format!("if !{active} {{ "),
                " }".into(),
            );
        }
    }

    fn in_function(
        &mut self,
        signature: &syn::Signature,
        block: &syn::Block,
        visit: impl FnOnce(&mut Self),
    ) {
        if signature.constness.is_some() {
            return;
        }
        let outer = std::mem::replace(&mut self.function, signature.ident.to_string());
        self.returns(&signature.output, block);
        visit(self);
        self.function = outer;
    }
}

impl<'ast> Visit<'ast> for Changes<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.in_function(&item.sig, &item.block, |changes| {
                changes.visit_block(&item.block)
            });
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            self.in_function(&item.sig, &item.block, |changes| {
                changes.visit_block(&item.block)
            });
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.in_function(&item.sig, block, |changes| changes.visit_block(block));
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let formats = item.trait_.as_ref().is_some_and(|(_, path, _)| {
            path.segments
                .last()
                .is_some_and(|last| last.ident == "Debug" || last.ident == "Display")
        });
        if !is_for_tests(&item.attrs) && !formats {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        self.omission(statement);
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_if(&mut self, expression: &'ast syn::ExprIf) {
        self.condition(&expression.cond);
        visit::visit_expr_if(self, expression);
    }

    fn visit_expr_while(&mut self, expression: &'ast syn::ExprWhile) {
        self.condition(&expression.cond);
        visit::visit_expr_while(self, expression);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        let has_rest = expression
            .arms
            .last()
            .is_some_and(|last| matches!(last.pat, syn::Pat::Wild(_)) && last.guard.is_none());
        for (at, arm) in expression.arms.iter().enumerate() {
            if let Some((_, guard)) = &arm.guard {
                self.condition(guard);
            } else if has_rest
                && at + 1 < expression.arms.len()
                && let Some(active) = self.add(
                    arm.pat.span(),
                    format!("without the case `{}`", shown(&arm.pat)),
                )
            {
                self.edits
                    .insert(arm.pat.span().byte_range().end, format!(" if !{active}"));
            }
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_expr_binary(&mut self, expression: &'ast syn::ExprBinary) {
        self.operator(expression);
        visit::visit_expr_binary(self, expression);
    }

    fn visit_expr_unary(&mut self, expression: &'ast syn::ExprUnary) {
        if let syn::UnOp::Not(not) = &expression.op
            && !contains_mutant(&expression.expr)
            && let Some(active) = self.add(
                expression.span(),
                format!("without ! in `{}`", shown(expression)),
            )
        {
            let after = format!(") {{ v => if {active} {{ v }} else {{ !v }} }})");
            self.edits
                .surround(expression.span().byte_range(), "(match (".into(), after);
            self.edits.replace(not.span().byte_range(), String::new());
        }
        visit::visit_expr_unary(self, expression);
    }

    // Patterns, types and constants need values that the compiler knows.
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_expr_repeat(&mut self, expression: &'ast syn::ExprRepeat) {
        self.visit_expr(&expression.expr);
    }
}

/// Returns values of a type, for functions that return at once.
fn values(of: &Type) -> Vec<String> {
    let Type::Path(path) = of else {
        return if matches!(of, Type::Tuple(tuple) if tuple.elems.is_empty()) {
            vec!["()".into()]
        } else {
            Vec::new()
        };
    };
    let Some(last) = path.path.segments.last() else {
        return Vec::new();
    };
    let strings = |values: &[&str]| values.iter().map(|value| value.to_string()).collect();
    match last.ident.to_string().as_str() {
        "bool" => strings(&["true", "false"]),
        "usize" | "u8" | "u16" | "u32" | "u64" | "u128" | "i32" | "i64" => strings(&["0", "1"]),
        "Option" => strings(&["None"]),
        "Vec" => strings(&["Vec::new()"]),
        "Result" => {
            let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else {
                return Vec::new();
            };
            let Some(syn::GenericArgument::Type(first)) = arguments.args.first() else {
                return Vec::new();
            };
            values(first)
                .into_iter()
                .map(|value| format!("Ok({value})"))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn is_assignment(operator: &BinOp) -> bool {
    use BinOp::*;
    matches!(
        operator,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}

/// Does an attribute compile the item for tests only?
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = attribute.meta.to_token_stream().to_string();
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && (tokens.contains("test") || tokens.contains("strategies"))
    })
}

/// Is the expression a part of a chain with `let`, which has no value?
fn contains_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(of) => contains_let(&of.left) || contains_let(&of.right),
        Expr::Paren(of) => contains_let(&of.expr),
        _ => false,
    }
}

/// Does the expression ask for a mutant of the library?
fn contains_mutant(expression: &Expr) -> bool {
    expression
        .to_token_stream()
        .to_string()
        .contains("mutant (")
}

/// Returns the text of a part on one line.
fn shown(part: &impl ToTokens) -> String {
    let text = part.to_token_stream().to_string();
    if text.chars().count() > 100 {
        text.chars().take(97).chain("...".chars()).collect()
    } else {
        text
    }
}
