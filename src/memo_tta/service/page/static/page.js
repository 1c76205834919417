"use strict";

// Everything works without this file but the token; it makes the page quicker and kinder.
const form = document.getElementById("form");
const file = document.getElementById("image");
const fileName = document.getElementById("file-name");
const invitation = fileName.textContent;

function say(target, message) {
  const article = document.createElement("article");
  article.className = "refusal";
  article.setAttribute("role", "alert");
  article.textContent = message;
  target.replaceChildren(article);
}

function show(slider) {
  const output = form.querySelector(`output[for="${slider.id}"]`);
  const values = slider.dataset.values?.split(" ");
  output.textContent = values ? values[slider.value] : slider.value;
  slider.setAttribute("aria-valuetext", output.textContent);
}

for (const slider of form.querySelectorAll("input[type=range]")) {
  slider.addEventListener("input", () => show(slider));
  show(slider);
}

function forgetFile() {
  file.value = "";
  fileName.textContent = invitation;
}

file.addEventListener("change", (event) => {
  const chosen = file.files[0];
  const limit = Number(form.dataset.maxBody);
  if (chosen && chosen.size > limit) {
    event.stopPropagation();
    say(document.getElementById("preview"),
      `${chosen.name} has ${(chosen.size / 2 ** 20).toFixed(1)} MiB; at most ${limit / 2 ** 20} MiB are allowed: make the image smaller.`);
    forgetFile();
  } else if (chosen) {
    fileName.textContent = chosen.name;
    for (const radio of form.querySelectorAll("input[name=sample]")) radio.checked = false;
  } else {
    forgetFile();
  }
});

for (const radio of form.querySelectorAll("input[name=sample]")) {
  radio.addEventListener("change", forgetFile);
}

document.body.addEventListener("htmx:configRequest", (event) => {
  const token = document.getElementById("token")?.value;
  if (token) event.detail.headers["Authorization"] = `Bearer ${token}`;
});
document.body.addEventListener("htmx:beforeRequest", (event) => {
  event.detail.target.setAttribute("aria-busy", "true");
});
document.body.addEventListener("htmx:afterRequest", (event) => {
  event.detail.target.removeAttribute("aria-busy");
});
document.body.addEventListener("htmx:afterSwap", (event) => {
  const result = event.detail.target;
  const isFarDown = result.getBoundingClientRect().top > 0.6 * window.innerHeight;
  if (result.id === "result" && isFarDown) result.scrollIntoView();
});
// A page that was opened too early shows its image as soon as the model is warm.
document.body.addEventListener("htmx:afterSwap", (event) => {
  const target = event.detail.target;
  if (target.id === "preview" && target.querySelector("[data-error=starting]")) {
    setTimeout(() => htmx.trigger(target, "again"), 1000);
  }
});
for (const problem of ["htmx:sendError", "htmx:timeout"]) {
  document.body.addEventListener(problem, (event) => {
    say(event.detail.target, "The service cannot be reached. Is it still running?");
  });
}
