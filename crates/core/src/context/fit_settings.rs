//! Decides which of a host's generation settings apply to one model call, and which are left out.

use crate::model::{
    Generation, Tool,
    generation::{Setting, ToolChoice, Unsupported},
};

/// Returns the settings for a call in this step with these tools, and the settings that were left out. A forced tool
/// call applies to the first step only, so that it cannot loop. `refused` are the settings that the model does not
/// support.
pub fn fit<'a>(
    wanted: &Generation,
    step: u32,
    tools: impl IntoIterator<Item = &'a Tool>,
    refused: Vec<Unsupported>,
) -> (Generation, Vec<Unsupported>) {
    let names: Vec<&str> = tools.into_iter().map(|tool| tool.name.as_str()).collect();
    let mut fitting = wanted.clone();
    let mut left_out = refused;
    left_out.extend(wanted.tool_choice.as_ref().and_then(|choice| impossible(choice, &names)));
    for Unsupported { setting, why: _ } in &left_out {
        fitting.clear(*setting);
    }
    fitting = in_step(&fitting, step);
    if names.is_empty() {
        // Providers reject both if there are no tools; leaving them out then changes nothing.
        fitting.clear(Setting::ToolChoice);
        fitting.clear(Setting::ParallelToolCalls);
    }
    (fitting, left_out)
}

/// The settings for this step: a forced tool call applies to the first step only.
pub fn in_step(wanted: &Generation, step: u32) -> Generation {
    let forced = wanted.tool_choice.as_ref().is_some_and(ToolChoice::is_forced);
    let mut settings = wanted.clone();
    if step > 1 && forced {
        settings.tool_choice = Some(ToolChoice::Auto);
    }
    settings
}

/// Why a model with these tools cannot make the required call. Returns `None` if it can, or if no call is required.
fn impossible(choice: &ToolChoice, tools: &[&str]) -> Option<Unsupported> {
    let why = match choice {
        ToolChoice::Tool(name) if !tools.contains(&name.as_str()) => {
            format!("The tool {name} is not sent to the model.")
        }
        ToolChoice::Required if tools.is_empty() => "No tool is sent to the model.".to_owned(),
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Required | ToolChoice::Tool(_) => {
            return None;
        }
    };
    Some(Unsupported { setting: Setting::ToolChoice, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::testing;

    fn chosen(choice: &ToolChoice, step: u32, tools: &[&str]) -> (Option<ToolChoice>, usize) {
        let tools: Vec<Tool> = tools.iter().map(|name| testing::tool(name)).collect();
        let wanted = Generation { tool_choice: Some(choice.clone()), ..Generation::default() };
        let (fitting, left_out) = fit(&wanted, step, &tools, Vec::new());
        assert!(left_out.iter().all(|it| it.setting == Setting::ToolChoice));
        (fitting.tool_choice, left_out.len())
    }

    fn look() -> ToolChoice {
        ToolChoice::Tool("look".to_owned())
    }

    #[test]
    fn a_forced_call_holds_for_the_first_step_only() {
        let auto = ToolChoice::Auto;
        let none = ToolChoice::None;
        for (choice, later) in
            [(ToolChoice::Required, &auto), (look(), &auto), (ToolChoice::None, &none), (ToolChoice::Auto, &auto)]
        {
            assert_eq!(chosen(&choice, 1, &["look"]), (Some(choice.clone()), 0));
            assert_eq!(chosen(&choice, 2, &["look"]), (Some(later.clone()), 0), "{choice:?}");
        }
    }

    #[test]
    fn a_forced_call_without_its_tool_is_left_out_and_said_so() {
        assert_eq!(chosen(&look(), 1, &["list"]), (None, 1));
        assert_eq!(chosen(&look(), 2, &["list"]), (None, 1));
        let table = [(ToolChoice::Auto, 0), (ToolChoice::None, 0), (ToolChoice::Required, 1), (look(), 1)];
        for (choice, said) in table {
            assert_eq!(chosen(&choice, 1, &[]), (None, said), "{choice:?}");
        }
    }

    #[test]
    fn parallel_tool_calls_is_left_out_without_tools() {
        let wanted = Generation { parallel_tool_calls: Some(false), ..Generation::default() };
        assert_eq!(fit(&wanted, 1, &[], Vec::new()), (Generation::default(), Vec::new()));
        assert_eq!(fit(&wanted, 1, &[testing::tool("look")], Vec::new()), (wanted, Vec::new()));
    }

    #[test]
    fn unsupported_generation_parameters_are_left_out() {
        let wanted = Generation { top_k: Some(1), seed: Some(2), ..Generation::default() };
        let refused = vec![Unsupported { setting: Setting::TopK, why: "It has none.".to_owned() }];
        let expected = Generation { top_k: None, ..wanted.clone() };
        assert_eq!(fit(&wanted, 1, &[], refused.clone()), (expected, refused));
    }
}
