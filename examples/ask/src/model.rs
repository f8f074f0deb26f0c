//! The model. Here it is a parrot, which needs no network and no money.

use std::time::Duration;

use tokio::sync::mpsc;

/// Words that wait for their session. A model whose session does not take them waits too.
const WAITING_MAX: usize = 16;

/// Answers questions. A silo has one.
pub trait Model: Send + Sync {
    /// The words of an answer behind `said`, one after the other. A dropped receiver stops the
    /// model.
    fn answer(&self, question: &str, said: &str) -> mpsc::Receiver<String>;
}

/// A model that says something of the question's words, slowly.
#[derive(Clone, Copy, Debug)]
pub struct Parrot {
    /// The time that a word takes.
    pub word: Duration,
}

impl Model for Parrot {
    fn answer(&self, question: &str, said: &str) -> mpsc::Receiver<String> {
        let (says, heard) = mpsc::channel(WAITING_MAX);
        let rest = sentences(question).into_iter().skip(said.split_whitespace().count());
        let (words, pause) = (rest.collect::<Vec<_>>(), self.word);
        tokio::spawn(async move {
            for word in words {
                tokio::time::sleep(pause).await;
                if says.send(word).await.is_err() {
                    return;
                }
            }
        });
        heard
    }
}

/// Words of the parrot's answer.
fn sentences(question: &str) -> Vec<String> {
    let letters = |word: &str| word.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    let topics: Vec<_> =
        question.split_whitespace().map(letters).filter(|word| word.len() > 3).take(5).collect();
    let begin = ["You", "ask", "about", "that,", "and", "I", "am", "only", "a", "parrot."];
    let mut words: Vec<String> = begin.iter().map(|&word| word.to_owned()).collect();
    for topic in &topics {
        let sentence = format!(
            "Some say that {topic} is best kept in one place, asked one thing at a time, and found \
             again after a fall; others say that {topic} only wants to be left alone."
        );
        words.extend(sentence.split_whitespace().map(str::to_owned));
    }
    words.extend(["That", "is", "all."].map(str::to_owned));
    words
}
