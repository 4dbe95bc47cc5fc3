//! Commands are applied once, and only where they fit.

use conversations::ServiceErrorKind::{Conflict, Denied, Invalid};
use futures_util::future::join_all;
use protocol::risk::ConfirmationPolicy;
use protocol::{AgentState, CommandRequest, EventId, EventQuery, EventSource, UserCommand};

use super::{ServiceBackend, asked, kind, message, wait_for};

/// A command that is sent again is applied once: concurrently, and after a newer one.
pub async fn command_with_an_id_is_applied_once(backend: &dyn ServiceBackend) {
    let service = backend.service(Some("ada"));
    let id = asked(service.as_ref()).await;
    let repeated = (0..8).map(|_| service.apply(&id, message("one", "Ada")));
    let events = join_all(repeated).await.into_iter().map(Result::unwrap);
    let events: Vec<_> = events.collect();
    assert!(events[0].is_some() && events.iter().all(|event| *event == events[0]));
    let mut updates = service.follow(&id, None).await.unwrap();
    wait_for(&mut updates, AgentState::Finished).await;
    // Reordered: the older command is sent again after a newer one, and the connection is cut
    // before it.
    let newer = service.apply(&id, message("two", "Eva")).await.unwrap();
    backend.disturb();
    let older = service.apply(&id, message("one", "Ada")).await.unwrap();
    assert!(older == events[0] && newer > older);
    let query = EventQuery {
        kinds: vec!["message".to_owned()],
        source: Some(EventSource::User),
        ..EventQuery::default()
    };
    let sent = service.events(&id, query).await.unwrap().parse().unwrap();
    let commands = sent.iter().filter_map(|event| event.command.as_ref());
    let commands: Vec<_> = commands.map(|id| id.as_str()).collect();
    assert_eq!(commands, ["one", "two"]);
    let stop = || CommandRequest::from(UserCommand::Stop);
    service.apply(&id, stop()).await.unwrap();
    let again = service.apply(&id, stop()).await.unwrap();
    assert_eq!(again, None, "there is nothing to do");
}

/// A model is chosen for a conversation that runs, which its log and the list show.
pub async fn chosen_model_is_recorded_once(backend: &dyn ServiceBackend) {
    let service = backend.service(Some("ada"));
    let id = asked(service.as_ref()).await;
    let request = CommandRequest {
        id: Some("model".parse().unwrap()),
        command: UserCommand::SetModel {
            model: "glovebox/scripted".to_owned(),
        },
    };
    let changed = service.apply(&id, request.clone()).await.unwrap();
    backend.disturb();
    assert!(changed.is_some());
    assert_eq!(service.apply(&id, request).await.unwrap(), changed);
    let item = service.get(&id).await.unwrap();
    assert_eq!(item.model.as_deref(), Some("glovebox/scripted"));
    // The conversation continues.
    let mut updates = service.follow(&id, None).await.unwrap();
    service.apply(&id, message("ada", "Ada")).await.unwrap();
    wait_for(&mut updates, AgentState::Finished).await;
    for model in ["", " spaced", "two\nlines", &"x".repeat(257)] {
        let model = model.to_owned();
        let refused = service.apply(&id, UserCommand::SetModel { model }.into());
        assert_eq!(kind(refused.await), Invalid);
    }
}

/// Decisions without a question, and texts that are empty or too long, are rejected.
pub async fn commands_are_rejected_when_they_do_not_fit(backend: &dyn ServiceBackend) {
    let service = backend.service(Some("ada"));
    let id = asked(service.as_ref()).await;
    let unnamed = CommandRequest {
        id: Some("decision".parse().unwrap()),
        command: UserCommand::confirm(None),
    };
    let long = "x".repeat((1 << 20) + 1);
    for (request, expected) in [
        (UserCommand::confirm(Some(EventId(1))).into(), Conflict),
        (UserCommand::confirm(None).into(), Conflict),
        (unnamed, Invalid),
        (message("empty", " "), Invalid),
        (message("long", &long), Invalid),
        (
            UserCommand::SetTitle {
                title: String::new(),
            }
            .into(),
            Invalid,
        ),
    ] {
        let name = format!("{:.80}", format!("{request:?}"));
        assert_eq!(kind(service.apply(&id, request).await), expected, "{name}");
    }
}

/// Users can neither grant limits nor change the confirmation policy.
pub async fn only_the_operator_grants_limits(backend: &dyn ServiceBackend) {
    let service = backend.service(Some("ada"));
    let id = asked(service.as_ref()).await;
    let more = || UserCommand::Resume {
        more_iterations: Some(5),
        more_budget: None,
    };
    let policy = || UserCommand::SetConfirmation {
        policy: ConfirmationPolicy::Always,
    };
    for command in [more(), policy()] {
        assert_eq!(kind(service.apply(&id, command.into()).await), Denied);
    }
    let operator = backend.service(None);
    assert!(operator.apply(&id, policy().into()).await.is_ok());
}
