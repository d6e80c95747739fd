//! What a prompt is made of, counted, and what each piece costs.

/// A piece of a prompt that has a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Term {
    /// The prompt itself, once.
    Prompt,
    /// The model thinks before it answers, or was not asked not to, once.
    Thinking,
    /// The model was asked to think, once: some services write into the prompt how long it may.
    ThinkingRequested,
    /// Tokens of what is said.
    Text,
    /// Each message that is not a system message.
    Message,
    /// Each of them that the model said itself.
    Answer,
    /// Each system message.
    System,
    /// There is no system message, once: some services put in their own.
    NoSystem,
    /// The block about tools, once.
    Tools,
    /// Tools where there is a system message too, once.
    ToolsBesideSystem,
    /// A tool must be called.
    Forced,
    /// A tool must be called where there is a system message too, once.
    ForcedBesideSystem,
    /// No tool may be called, also where tools are left out for that.
    Forbidden,
    /// Tokens of the definitions as the family writes them.
    Definition,
    /// Each tool.
    Tool,
    /// Each tool with a description.
    DescribedTool,
    /// Each property in the schemas, nested ones too.
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
    /// Tokens of names and arguments of calls.
    CallText,
    /// Each argument of a call: some families write each with a name and delimiters of its own.
    Argument,
    /// Each call of a message but its first.
    ParallelCall,
    /// Each result.
    Result,
    /// Tokens of results.
    ResultText,
    /// Tokens of media, by the family's own formulas.
    Media,
}

/// How many there are.
pub const TERMS: usize = 28;

/// How much of each term a prompt or a piece of one has.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Terms([f64; TERMS]);

impl Terms {
    /// One of this term and nothing else.
    pub fn one(term: Term) -> Self {
        Self::some(term, 1.0)
    }

    /// So much of this term and nothing else.
    pub fn some(term: Term, amount: f64) -> Self {
        let mut terms = Self::default();
        terms.set(term, amount);
        terms
    }

    /// How much of it.
    pub fn get(&self, term: Term) -> f64 {
        self.0[term as usize]
    }

    /// So much of it.
    pub fn set(&mut self, term: Term, amount: f64) {
        self.0[term as usize] = amount;
    }

    /// More of everything.
    pub fn add(&mut self, more: &Self) {
        for (amount, more) in self.0.iter_mut().zip(&more.0) {
            *amount += more;
        }
    }

    /// So many times everything.
    pub fn scale(&mut self, times: f64) {
        self.0.iter_mut().for_each(|amount| *amount *= times);
    }

    /// Less of everything.
    pub fn subtract(&mut self, less: &Self) {
        for (amount, less) in self.0.iter_mut().zip(&less.0) {
            *amount -= less;
        }
    }

    /// All of them in order.
    pub fn all(&self) -> &[f64; TERMS] {
        &self.0
    }
}

/// What each term costs in tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs([f64; TERMS]);

impl Costs {
    /// These costs, nothing for the rest. Media are counted in tokens already.
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

    /// What one of it costs.
    pub fn get(&self, term: Term) -> f64 {
        self.0[term as usize]
    }

    /// Tokens of these terms, never below none.
    pub fn of(&self, terms: &Terms) -> u32 {
        // Saturates at both ends.
        self.value(terms).round() as u32
    }

    /// The same before it is rounded.
    pub fn value(&self, terms: &Terms) -> f64 {
        self.0
            .iter()
            .zip(&terms.0)
            .map(|(cost, amount)| cost * amount)
            .sum()
    }
}
