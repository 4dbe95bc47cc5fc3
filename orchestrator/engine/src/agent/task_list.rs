//! The agent's task list. It is stored only in the log: each observation of this kind holds the
//! whole list, so the latest one is current.

use protocol::Observation;
use protocol::action::{TaskTrackingAction, TrackedTask};
use protocol::observation::TaskTrackingObservation;

/// The `error_id` of the observation of an unknown command.
const UNKNOWN_COMMAND: &str = "AGENT$UNKNOWN_COMMAND";

/// Returns the observation of an action on the list, whose previous content is `tasks`. Pure.
pub fn update_task_list(action: &TaskTrackingAction, tasks: &[TrackedTask]) -> Observation {
    let (content, task_list) = match action.command.as_str() {
        "plan" => (summary(&action.task_list), action.task_list.clone()),
        "view" if tasks.is_empty() => (
            "The list is empty: write it with `plan`.".to_owned(),
            Vec::new(),
        ),
        "view" => (tasks.iter().map(line).collect(), tasks.to_vec()),
        other => {
            return Observation::error(
                format!("the task list has no command {other:?}"),
                UNKNOWN_COMMAND,
            );
        }
    };
    Observation::new(
        content,
        TaskTrackingObservation {
            command: action.command.clone(),
            task_list,
        },
    )
}

fn summary(tasks: &[TrackedTask]) -> String {
    let done = tasks.iter().filter(|task| task.status == "done").count();
    format!("The list is written: {} tasks, {done} done.", tasks.len())
}

fn line(task: &TrackedTask) -> String {
    let notes = if task.notes.is_empty() {
        String::new()
    } else {
        format!(" ({})", task.notes)
    };
    format!("{}. [{}] {}{notes}\n", task.id, task.status, task.title)
}

#[cfg(test)]
mod tests {
    use protocol::ObservationKind;

    use super::*;

    fn act(command: &str, task_list: Vec<TrackedTask>) -> TaskTrackingAction {
        TaskTrackingAction {
            command: command.into(),
            task_list,
            thought: String::new(),
        }
    }

    #[test]
    fn planned_tasks_can_be_viewed() {
        let task = |id: &str, status: &str, notes: &str| TrackedTask {
            id: id.into(),
            title: format!("task {id}"),
            status: status.into(),
            notes: notes.into(),
        };
        let tasks = vec![task("1", "done", "n"), task("2", "todo", "")];
        let planned = update_task_list(&act("plan", tasks.clone()), &[]);
        assert_eq!(planned.content, "The list is written: 2 tasks, 1 done.");
        let ObservationKind::TaskTracking(planned_list) = planned.kind else {
            panic!("{planned:?}")
        };
        assert_eq!(
            (planned_list.command.as_str(), &planned_list.task_list),
            ("plan", &tasks)
        );
        let viewed = update_task_list(&act("view", Vec::new()), &planned_list.task_list);
        assert_eq!(viewed.content, "1. [done] task 1 (n)\n2. [todo] task 2\n");
        let ObservationKind::TaskTracking(viewed) = viewed.kind else {
            panic!("a list")
        };
        assert_eq!(
            viewed.task_list, tasks,
            "the latest observation is the list, also after it was viewed"
        );
        assert_eq!(
            update_task_list(&act("view", Vec::new()), &[]).content,
            "The list is empty: write it with `plan`."
        );
        assert!(matches!(
            update_task_list(&act("eat", Vec::new()), &tasks).kind,
            ObservationKind::Error(_)
        ));
    }
}
