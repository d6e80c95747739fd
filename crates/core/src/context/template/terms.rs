//! The terms that a prompt consists of, and their costs.

/// A component of a prompt that has a cost. "Once" means at most once per prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Term {
    /// The prompt itself, once.
    Prompt,
    /// Reasoning is on, or not disabled, once.
    Thinking,
    /// Reasoning was requested, once: some services write the reasoning budget into the prompt.
    ThinkingRequested,
    /// Tokens of message texts.
    Text,
    /// Each message that is not a system message.
    Message,
    /// Each assistant message.
    Answer,
    /// Each system message.
    System,
    /// There is no system message, once: some services insert their own.
    NoSystem,
    /// The block about tools, once.
    Tools,
    /// Tools together with a system message, once.
    ToolsBesideSystem,
    /// A tool call is required.
    Forced,
    /// A tool call is required and there is a system message, once.
    ForcedBesideSystem,
    /// No tool may be called, also if the tools are left out for that reason.
    Forbidden,
    /// Tokens of the definitions in the family's form.
    Definition,
    /// Each tool.
    Tool,
    /// Each tool with a description.
    DescribedTool,
    /// Each property in the schemas, nested ones included.
    Property,
    /// Each property with a description.
    DescribedProperty,
    /// Each object inside a schema.
    NestedObject,
    /// Each list in a schema.
    List,
    /// Each property that may be null.
    Nullable,
    /// Each call.
    Call,
    /// Tokens of the names and arguments of calls.
    CallText,
    /// Each argument of a call: some families write each argument with its name and delimiters.
    Argument,
    /// Each call of a message except the first.
    ParallelCall,
    /// Each result.
    Result,
    /// Tokens of results.
    ResultText,
    /// Tokens of media, by the family's own formulas.
    Media,
}

/// Number of terms.
pub const TERMS: usize = 28;

/// Amounts of each term in a prompt or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Terms([f64; TERMS]);

impl Terms {
    /// One unit of this term.
    pub fn one(term: Term) -> Self {
        Self::some(term, 1.0)
    }

    /// The given amount of this term.
    pub fn some(term: Term, amount: f64) -> Self {
        let mut terms = Self::default();
        terms.set(term, amount);
        terms
    }

    /// The amount of a term.
    pub fn get(&self, term: Term) -> f64 {
        self.0[term as usize]
    }

    /// Sets the amount of a term.
    pub fn set(&mut self, term: Term, amount: f64) {
        self.0[term as usize] = amount;
    }

    /// Adds the amounts of `more`.
    pub fn add(&mut self, more: &Self) {
        for (amount, more) in self.0.iter_mut().zip(&more.0) {
            *amount += more;
        }
    }

    /// Multiplies all amounts.
    pub fn scale(&mut self, times: f64) {
        self.0.iter_mut().for_each(|amount| *amount *= times);
    }

    /// Subtracts the amounts of `less`.
    pub fn subtract(&mut self, less: &Self) {
        for (amount, less) in self.0.iter_mut().zip(&less.0) {
            *amount -= less;
        }
    }

    /// All amounts, in the order of the terms.
    pub fn all(&self) -> &[f64; TERMS] {
        &self.0
    }
}

/// The cost of each term in tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs([f64; TERMS]);

impl Costs {
    /// These costs, and 0 for all other terms except media, whose amount is already in tokens.
    pub const fn new(costs: &[(Term, f64)]) -> Self {
        let mut all = [0.0; TERMS];
        all[Term::Media as usize] = 1.0;
        let mut at = 0;
        while at < costs.len() {
            all[costs[at].0 as usize] = costs[at].1;
            at += 1;
        }
        Self(all)
    }

    /// The cost of one unit of a term.
    pub fn get(&self, term: Term) -> f64 {
        self.0[term as usize]
    }

    /// The cost of these terms, rounded, and at least 0.
    pub fn of(&self, terms: &Terms) -> u32 {
        // The cast saturates at both ends.
        self.value(terms).round() as u32
    }

    /// The cost of these terms before rounding.
    pub fn value(&self, terms: &Terms) -> f64 {
        self.0.iter().zip(&terms.0).map(|(cost, amount)| cost * amount).sum()
    }
}
