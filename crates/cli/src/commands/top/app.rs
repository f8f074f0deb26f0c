//! The state of the screen, and the keys that change it. It draws nothing and asks nothing.

use emmer::admin::GrainName;
use emmer::console::{Picture, Wants};
use emmer::tables::Duty;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::acts::{Act, Done};
use super::rows::{Row, Target, View, rows};

/// Longest filter, in characters.
const FILTER_MAX: usize = 64;

/// The thing that keys go to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Table,
    /// The filter is being written.
    Filter,
    /// An order waits for a yes.
    Asks(Act),
    /// A page about a grain is open, from this line on.
    Page {
        grain: GrainName,
        text: String,
        from: usize,
    },
    Help,
}

/// Result of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Stay,
    Quit,
    Act(Act),
}

/// The state of the screen.
#[derive(Default)]
pub(super) struct App {
    pub(super) view: View,
    pub(super) picture: Picture,
    pub(super) mode: Mode,
    pub(super) filter: String,
    /// Column that rows are sorted by; none for the view's own.
    sort: Option<usize>,
    pub(super) is_reversed: bool,
    pub(super) selected: usize,
    pub(super) is_paused: bool,
    /// Last answer to an order.
    pub(super) said: Option<String>,
    /// Number of pictures so far.
    pub(super) seen: u64,
}

impl App {
    /// The parts of the picture that are shown.
    pub(super) const fn wants(&self) -> Wants {
        self.view.wants()
    }

    /// A new picture.
    pub(super) fn see(&mut self, picture: Picture) {
        self.seen += 1;
        if !self.is_paused {
            self.picture = picture;
        }
    }

    /// An order was obeyed, or a look is over.
    pub(super) fn done(&mut self, done: Done) {
        match done {
            Done::Page(grain, text) => {
                let from = match &self.mode {
                    Mode::Page { grain: open, from, .. } if *open == grain => *from,
                    _ => 0,
                };
                self.mode = Mode::Page { grain, text, from };
            }
            Done::Said(said) => self.said = Some(said),
        }
    }

    pub(super) fn sort(&self) -> usize {
        self.sort.unwrap_or_else(|| self.view.first_sort())
    }

    /// The rows that are shown, in their order.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = rows(self.view, &self.picture);
        rows.retain(|row| self.filter.is_empty() || row.has(&self.filter));
        let sort = self.sort();
        rows.sort_by(|a, b| match (a.cells.get(sort), b.cells.get(sort)) {
            (Some(a), Some(b)) if self.is_reversed => b.compare(a),
            (Some(a), Some(b)) => a.compare(b),
            _ => std::cmp::Ordering::Equal,
        });
        rows
    }

    fn target(&self) -> Target {
        self.rows().get(self.selected).map_or(Target::Nothing, |row| row.target.clone())
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Step {
        if key.kind == KeyEventKind::Release {
            return Step::Stay;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Step::Quit;
        }
        match std::mem::take(&mut self.mode) {
            Mode::Table => self.table_key(key.code),
            Mode::Filter => self.filter_key(key.code),
            Mode::Help => Step::Stay,
            Mode::Asks(act) => {
                if matches!(key.code, KeyCode::Char('y' | 'Y')) {
                    self.said = Some("under way".to_owned());
                    return Step::Act(act);
                }
                self.said = Some("nothing was done".to_owned());
                Step::Stay
            }
            Mode::Page { grain, text, from } => self.page_key(key.code, grain, text, from),
        }
    }

    fn table_key(&mut self, code: KeyCode) -> Step {
        let last = self.rows().len().saturating_sub(1);
        match code {
            KeyCode::Char('q') => return Step::Quit,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => return Step::Quit,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Tab | KeyCode::Right => self.turn_to(1),
            KeyCode::BackTab | KeyCode::Left => self.turn_to(View::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='8') => {
                let at = (digit as usize) - ('1' as usize);
                self.open(View::ALL.get(at).copied().unwrap_or_default());
            }
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected = (self.selected + 20).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(20),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Char('s') => {
                self.sort = Some((self.sort() + 1) % self.view.head().len());
            }
            KeyCode::Char('S') => self.is_reversed = !self.is_reversed,
            other => return self.act_key(other),
        }
        Step::Stay
    }

    /// Keys for the selected row. An order asks first.
    fn act_key(&mut self, code: KeyCode) -> Step {
        let act = match (code, self.target()) {
            (KeyCode::Enter, Target::Grain(grain)) => return Step::Act(Act::Look(grain)),
            (KeyCode::Char('d'), Target::Grain(grain)) => {
                Act::Deactivate { grain, drop_turns: false }
            }
            (KeyCode::Char('D'), Target::Grain(grain)) => {
                Act::Deactivate { grain, drop_turns: true }
            }
            (KeyCode::Char('m'), Target::Grain(grain)) => Act::Move(grain),
            (KeyCode::Char('c'), Target::Silo(silo)) => Act::GiveDuty(silo, Duty::Cordoned),
            (KeyCode::Char('u'), Target::Silo(silo)) => Act::GiveDuty(silo, Duty::Full),
            (KeyCode::Char('r'), Target::Silo(silo)) => Act::GiveDuty(silo, Duty::Draining),
            (KeyCode::Char('x'), Target::Silo(silo)) => Act::GiveDuty(silo, Duty::Leaving),
            _ => return Step::Stay,
        };
        self.said = None;
        self.mode = Mode::Asks(act);
        Step::Stay
    }

    fn filter_key(&mut self, code: KeyCode) -> Step {
        match code {
            KeyCode::Enter => return Step::Stay,
            KeyCode::Esc => {
                self.filter.clear();
                return Step::Stay;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(char) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push(char);
            }
            _ => {}
        }
        self.selected = 0;
        self.mode = Mode::Filter;
        Step::Stay
    }

    fn page_key(&mut self, code: KeyCode, grain: GrainName, text: String, from: usize) -> Step {
        let last = text.lines().count().saturating_sub(1);
        let from = match code {
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => {
                return Step::Stay;
            }
            KeyCode::Char('d') => {
                self.mode = Mode::Asks(Act::Deactivate { grain, drop_turns: false });
                return Step::Stay;
            }
            KeyCode::Char('D') => {
                self.mode = Mode::Asks(Act::Deactivate { grain, drop_turns: true });
                return Step::Stay;
            }
            KeyCode::Char('r') | KeyCode::Enter => {
                let act = Act::Look(grain.clone());
                self.mode = Mode::Page { grain, text, from };
                return Step::Act(act);
            }
            KeyCode::Down | KeyCode::Char('j') => (from + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => (from + 20).min(last),
            KeyCode::PageUp => from.saturating_sub(20),
            _ => from,
        };
        self.mode = Mode::Page { grain, text, from };
        Step::Stay
    }

    fn turn_to(&mut self, steps: usize) {
        let at = View::ALL.iter().position(|view| *view == self.view).unwrap_or(0);
        self.open(View::ALL[(at + steps) % View::ALL.len()]);
    }

    fn open(&mut self, view: View) {
        if view != self.view {
            (self.view, self.sort, self.is_reversed, self.selected) = (view, None, false, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(app: &mut App, code: KeyCode) -> Step {
        app.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn an_order_is_given_after_a_yes_alone() {
        let silo = "127.0.0.1:1:1".parse().unwrap();
        let mut app = App::default();
        for (answer, expected) in [
            (KeyCode::Char('n'), Step::Stay),
            (KeyCode::Enter, Step::Stay),
            (KeyCode::Char('y'), Step::Act(Act::GiveDuty(silo, Duty::Draining))),
        ] {
            app.mode = Mode::Asks(Act::GiveDuty(silo, Duty::Draining));
            assert_eq!(press(&mut app, answer), expected);
            assert_eq!(app.mode, Mode::Table);
        }
    }

    #[test]
    fn keys_open_views_filter_and_end() {
        let mut app = App::default();
        press(&mut app, KeyCode::Char('3'));
        assert_eq!(
            (app.view, app.wants().methods, app.wants().types),
            (View::Methods, true, false)
        );
        press(&mut app, KeyCode::Tab);
        assert_eq!(app.view, View::Hot);
        press(&mut app, KeyCode::Char('/'));
        for char in "q1".chars() {
            press(&mut app, KeyCode::Char(char));
        }
        assert_eq!((app.filter.as_str(), app.view), ("q1", View::Hot));
        press(&mut app, KeyCode::Enter);
        assert_eq!(press(&mut app, KeyCode::Esc), Step::Stay);
        assert!(app.filter.is_empty());
        assert_eq!(press(&mut app, KeyCode::Char('q')), Step::Quit);
    }
}
