//! The models of a provider, from the shipped table, the service's model list and the operator's
//! configuration. The later source takes precedence, fact by fact. `model_facts/README.md` lists
//! the sources of the shipped facts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use super::{
    discovery::{CachedModelList, ModelFacts, listing::ModelListSnapshot},
    http::{SetupError, is_in_domain},
    info::{ModelInfo, Source},
    model_names::ModelNames,
};
use crate::model::DeclaredModel;

/// The shipped facts, by vendor and model.
static SHIPPED: LazyLock<BTreeMap<&'static str, BTreeMap<&'static str, ModelFacts>>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("model_facts/models.json")).expect("the shipped table is valid; a test reads it")
});

/// Host names, and the vendor whose models in the table they serve. Subdomains are included.
const HOSTS: &[(&str, &str)] = &[
    ("api.anthropic.com", "anthropic"),
    ("api.cerebras.ai", "cerebras"),
    ("api.deepseek.com", "deepseek"),
    ("api.fireworks.ai", "fireworks"),
    ("api.groq.com", "groq"),
    ("api.mistral.ai", "mistral"),
    ("api.moonshot.ai", "moonshotai"),
    ("api.openai.com", "openai"),
    ("api.together.ai", "together"),
    ("api.together.xyz", "together"),
    ("api.x.ai", "xai"),
    ("api.z.ai", "zai"),
    ("generativelanguage.googleapis.com", "google"),
    ("openrouter.ai", "openrouter"),
];

/// The models of one provider: those known by name, and any other name, which is passed through.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    shipped: Option<&'static BTreeMap<&'static str, ModelFacts>>,
    declared: BTreeMap<String, DeclaredModel>,
    listing: CachedModelList,
    names: ModelNames,
}

impl Catalog {
    /// Creates a catalog of the models that the operator configured and those shipped for this
    /// host. Models that the service lists are added through [`Catalog::listing`].
    pub fn new(host: &str, declared: BTreeMap<String, DeclaredModel>) -> Self {
        let mut hosts = HOSTS.iter();
        let vendor = hosts.find(|(known, _)| is_in_domain(host, known));
        Self { shipped: vendor.and_then(|(_, vendor)| SHIPPED.get(vendor)), declared, ..Self::default() }
    }

    /// Restricts model names to those that the protocol accepts, and validates the names that the
    /// operator configured.
    ///
    /// # Errors
    ///
    /// Returns [`SetupError::ModelName`] if the protocol does not accept one of them.
    pub fn checked(self, names: ModelNames) -> Result<Self, SetupError> {
        let declared = self.declared.iter();
        let declared = declared.flat_map(|(name, it)| std::iter::once(name).chain(&it.aliases));
        let refused = { declared }.find(|name| !names.accepts(name)).cloned();
        match refused {
            Some(name) => Err(SetupError::ModelName { name, rule: names.rule() }),
            None => Ok(Self { names, ..self }),
        }
    }

    /// The service's most recent model list.
    pub fn listing(&self) -> &CachedModelList {
        &self.listing
    }

    /// Returns the model with this name or alias. An unknown name is passed through unchanged.
    /// Returns `None` if the protocol does not accept the name.
    pub fn model(&self, name: &str) -> Option<ModelInfo> {
        self.find(name, self.listing.last().as_deref())
    }

    fn find(&self, name: &str, listed: Option<&ModelListSnapshot>) -> Option<ModelInfo> {
        if !self.names.accepts(name) {
            return None;
        }
        let known = |name: &str| {
            let shipped = self.shipped(name);
            match listed.and_then(|listed| Some((listed.at, listed.list.get(name)?))) {
                Some((at, listed)) => shipped.listed(at, listed),
                None => shipped,
            }
        };
        let aliased = || self.declared.iter().find(|(_, it)| it.aliases.iter().any(|alias| alias == name));
        let declared = self.declared.get_key_value(name).or_else(aliased);
        Some(match declared {
            Some((name, declared)) => known(name).with(declared),
            None => known(name),
        })
    }

    /// The models known by name, ordered by name.
    pub fn models(&self) -> Vec<ModelInfo> {
        let shipped = self.shipped.into_iter().flat_map(BTreeMap::keys).copied();
        let last = self.listing.last();
        let listed = last.iter().flat_map(|last| last.list.models.keys());
        let others = self.declared.keys().chain(listed);
        let names: BTreeSet<&str> = shipped.chain(others.map(String::as_str)).collect();
        let models = names.into_iter();
        models.filter_map(|name| self.find(name, last.as_deref())).collect()
    }

    /// The facts in the table. A dated version that the table does not list has the facts of the
    /// model without the date.
    fn shipped(&self, name: &str) -> ModelInfo {
        let find = |name: &str| self.shipped.and_then(|models| models.get(name));
        let facts = find(name).or_else(|| undated(name).and_then(find));
        let unknown = ModelInfo::unknown(name);
        match facts {
            Some(facts) => unknown.merged(facts.clone(), Source::Shipped),
            None => unknown,
        }
    }
}

/// The name without a date suffix as OpenAI (`-2025-08-07`) or Anthropic (`-20250929`) writes it.
/// Returns `None` if there is none.
fn undated(name: &str) -> Option<&str> {
    let date = |form: &str| {
        let start = name.len().checked_sub(form.len())?;
        let (rest, end) = name.split_at_checked(start)?;
        let fits = |(c, form): (char, char)| {
            if form == '0' { c.is_ascii_digit() } else { c == form }
        };
        (!rest.is_empty() && end.chars().zip(form.chars()).all(fits)).then_some(rest)
    };
    date("-0000-00-00").or_else(|| date("-00000000"))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        model::{
            CachePrices, Generation,
            generation::{ReasoningEffort, Setting, Temperature},
        },
        provider::{discovery::ModelList, info::Limit},
    };

    fn openai(declared: &[(&str, DeclaredModel)]) -> Catalog {
        let declared = declared.iter().map(|(name, declared)| ((*name).to_owned(), declared.clone())).collect();
        Catalog::new("api.openai.com", declared)
    }

    #[test]
    fn model_catalog_is_complete_and_consistent() {
        for (_, vendor) in HOSTS {
            assert!(SHIPPED[vendor].len() >= 5, "{vendor}");
        }
        for (name, facts) in SHIPPED.values().flatten() {
            assert!(facts.context_window.is_some_and(|window| window > 0), "{name}");
            assert!(facts.max_output.is_none_or(|output| Some(output) <= facts.context_window), "{name}");
        }
    }

    #[test]
    fn a_model_is_found_by_exact_name_or_dated_name() {
        let limit = |tokens| Some(Limit::new(tokens, Source::Shipped));
        let catalog = openai(&[]);
        let gpt = catalog.model("gpt-5").unwrap();
        assert_eq!((gpt.context_window, gpt.max_output, gpt.source), (limit(400_000), limit(128_000), Source::Shipped));
        assert_eq!(
            (gpt.supports_tools, gpt.supports_parallel_tools, gpt.supports_temperature),
            (true, Some(true), Some(false))
        );
        use ReasoningEffort::{High, Low, Medium, Minimal};
        assert_eq!(gpt.reasoning_efforts.as_deref(), Some(&[Minimal, Low, Medium, High][..]));
        assert_eq!(gpt.input_media, ["image/*", "application/pdf"]);
        let dated = catalog.model("gpt-5-2099-12-31").unwrap();
        let named = ModelInfo { name: "gpt-5-2099-12-31".into(), display_name: "gpt-5-2099-12-31".into(), ..gpt };
        assert_eq!(dated, named);
        assert_eq!(catalog.model("never-heard-of"), Some(ModelInfo::unknown("never-heard-of")));
        assert_eq!(catalog.model(""), None);
    }

    #[test]
    fn a_model_has_the_prices_of_the_cache_that_its_vendor_takes() {
        let prices = |host: &str, model: &str| {
            let model = Catalog::new(host, BTreeMap::new()).model(model);
            model.unwrap().cache_prices
        };
        let percent = |read, write| Some(CachePrices { read, write });
        let table = [
            ("api.anthropic.com", "claude-sonnet-4-5", percent(10, 125)),
            ("api.openai.com", "gpt-5", percent(10, 100)),
            ("api.openai.com", "gpt-4o", percent(50, 100)),
            ("openrouter.ai", "openai/gpt-5", None),
        ];
        for (host, model, expected) in table {
            assert_eq!(prices(host, model), expected, "{model}");
        }
        let declared = DeclaredModel { cache_read_percent: Some(0), ..DeclaredModel::default() };
        let declared = openai(&[("gpt-4o", declared)]).model("gpt-4o").unwrap();
        assert_eq!(declared.cache_prices, percent(0, 100));
    }

    /// Row S4
    #[test]
    fn the_models_that_hosts_have_long_named_are_known() {
        let table = [
            ("api.openai.com", "gpt-4o", 128_000, 16_384),
            ("api.openai.com", "gpt-4o-mini", 128_000, 16_384),
            ("api.openai.com", "gpt-4-turbo", 128_000, 4_096),
            // The whole window, not 4,096: see model_facts/README.md.
            ("api.openai.com", "gpt-4", 8_192, 8_192),
            ("api.openai.com", "gpt-3.5-turbo", 16_385, 4_096),
            ("api.anthropic.com", "claude-3.5-sonnet", 200_000, 8_192),
            ("api.anthropic.com", "claude-3-5-sonnet-20241022", 200_000, 8_192),
            ("api.anthropic.com", "claude-3-opus-20240229", 200_000, 4_096),
            ("api.anthropic.com", "claude-3-sonnet", 200_000, 4_096),
            ("api.anthropic.com", "claude-3-haiku", 200_000, 4_096),
            ("generativelanguage.googleapis.com", "gemini-pro", 32_000, 8_192),
            ("generativelanguage.googleapis.com", "gemini-1.5-pro", 1_000_000, 8_192),
        ];
        for (host, name, window, output) in table {
            let model = Catalog::new(host, BTreeMap::new()).model(name).unwrap();
            let limits = [model.context_window, model.max_output].map(|limit| limit.map(|limit| limit.tokens));
            assert_eq!((limits, model.source), ([Some(window), Some(output)], Source::Shipped), "{name}");
        }
    }

    #[test]
    fn declared_model_facts_override_the_catalog_one_by_one() {
        let declared = DeclaredModel {
            display_name: Some("Our GPT".into()),
            aliases: vec!["best".into()],
            context_window: Some(1_000),
            tools: Some(false),
            ..DeclaredModel::default()
        };
        let catalog = openai(&[("gpt-5", declared), ("own", DeclaredModel::default())]);
        let gpt = catalog.model("best").unwrap();
        assert_eq!(catalog.model("gpt-5").as_ref(), Some(&gpt));
        assert_eq!(
            (gpt.name.as_str(), gpt.display_name.as_str(), gpt.source),
            ("gpt-5", "Our GPT", Source::Configured)
        );
        assert_eq!(gpt.context_window, Some(Limit::new(1_000, Source::Configured)));
        assert_eq!(gpt.max_output, Some(Limit::new(128_000, Source::Shipped)));
        assert!(!gpt.supports_tools && gpt.supports_parallel_tools == Some(true));
        let names: Vec<String> = catalog.models().into_iter().map(|model| model.name).collect();
        assert!(names.is_sorted() && names.contains(&"own".to_owned()) && names.contains(&"gpt-4o".to_owned()));
    }

    #[test]
    fn what_a_service_lists_wins_over_what_is_shipped_and_loses_to_what_is_declared() {
        let declared = DeclaredModel { max_output: Some(4_000), ..DeclaredModel::default() };
        let catalog = openai(&[("gpt-4o", declared)]);
        let smaller = ModelFacts { context_window: Some(8_000), tools: Some(false), ..ModelFacts::default() };
        let list = ModelList {
            models: [
                ("gpt-5".to_owned(), smaller.clone()),
                ("gpt-4o".to_owned(), smaller),
                ("gpt-new".to_owned(), ModelFacts::default()),
            ]
            .into(),
            any: None,
        };
        catalog.listing().set(Timestamp::UNIX_EPOCH, list);
        let listed = |tokens| Some(Limit::new(tokens, Source::Discovered));
        let gpt = catalog.model("gpt-5").unwrap();
        assert_eq!(
            (gpt.source, gpt.discovered, gpt.supports_tools),
            (Source::Discovered, Some(Timestamp::UNIX_EPOCH), false)
        );
        // No response is longer than the context window.
        assert_eq!((gpt.context_window, gpt.max_output), (listed(8_000), listed(8_000)));
        assert_eq!(gpt.supports_parallel_tools, Some(true), "as shipped");
        let gpt = catalog.model("gpt-4o").unwrap();
        assert_eq!((gpt.source, gpt.discovered), (Source::Configured, Some(Timestamp::UNIX_EPOCH)));
        assert_eq!((gpt.context_window, gpt.max_output), (listed(8_000), Some(Limit::new(4_000, Source::Configured))));
        let new = catalog.model("gpt-new").unwrap();
        assert_eq!((new.source, new.context_window), (Source::Discovered, None));
        let names: Vec<String> = catalog.models().into_iter().map(|it| it.name).collect();
        assert!(names.contains(&"gpt-new".to_owned()) && names.is_sorted());
        let other = catalog.model("never-heard-of").unwrap();
        assert_eq!((other.source, other.discovered), (Source::Assumed, None));
    }

    #[test]
    fn temperature_is_not_sent_to_models_that_refuse_it() {
        let wanted = Generation { temperature: Temperature::new(1.0), seed: Some(1), ..Generation::default() };
        let refused = |name: &str, wanted: &Generation| {
            let refused = openai(&[]).model(name).unwrap().unsupported_settings(wanted);
            refused.into_iter().map(|it| it.setting).collect::<Vec<_>>()
        };
        assert_eq!(refused("gpt-5", &wanted), [Setting::Temperature]);
        for (name, wanted) in [("gpt-5", &Generation::default()), ("gpt-4o", &wanted), ("never-heard-of", &wanted)] {
            assert_eq!(refused(name, wanted), [], "{name}");
        }
    }

    #[test]
    fn catalog_models_belong_to_their_vendors_hosts() {
        let names = |host: &str| Catalog::new(host, BTreeMap::new()).models().len();
        assert!(names("eu.api.openai.com") > 50);
        assert_eq!((names("localhost"), names("api.openai.com.example.org"), names("notopenrouter.ai")), (0, 0, 0));
    }

    #[test]
    fn only_date_suffixes_of_model_names_are_ignored() {
        let table = [
            ("gpt-5-2025-08-07", Some("gpt-5")),
            ("claude-sonnet-4-5-20250929", Some("claude-sonnet-4-5")),
            ("gpt-5", None),
            ("-2025-08-07", None),
            ("gpt-4-0613", None),
            ("üüüüü", None),
        ];
        for (name, expected) in table {
            assert_eq!(undated(name), expected, "{name}");
        }
    }
}
