"use strict";

// Optional, except for the access token: shows slider values and the controls of the chosen method, checks the
// file's size, reports errors.
const form = document.getElementById("form");
const file = document.getElementById("image");
const fileName = document.getElementById("file-name");
const placeholder = fileName.textContent;

function showError(target, message) {
  const article = document.createElement("article");
  article.className = "error";
  article.setAttribute("role", "alert");
  article.textContent = message;
  target.replaceChildren(article);
}

function showValue(slider) {
  const output = form.querySelector(`output[for="${slider.id}"]`);
  const values = slider.dataset.values?.split(" ");
  output.textContent = values ? values[slider.value] : slider.value;
  slider.setAttribute("aria-valuetext", output.textContent);
}

for (const slider of form.querySelectorAll("input[type=range]")) {
  slider.addEventListener("input", () => showValue(slider));
  showValue(slider);
}

// Only the chosen method's controls are shown and sent.
const method = document.getElementById("method");
function showControls() {
  for (const controls of form.querySelectorAll("fieldset[data-method]")) {
    controls.hidden = controls.disabled = controls.dataset.method !== method.value;
  }
}
if (method) {
  method.addEventListener("change", showControls);
  showControls(); // a browser that goes back restores the choice
}

// Without a corruption, its severity has no effect.
const corruption = document.getElementById("corruption");
const severity = document.getElementById("severity");
function showSeverity() {
  severity.disabled = !corruption.value;
}
corruption.addEventListener("change", showSeverity);
showSeverity();

function clearFile() {
  file.value = "";
  fileName.textContent = placeholder;
}

file.addEventListener("change", (event) => {
  const chosen = file.files[0];
  const limit = Number(form.dataset.maxBody);
  if (chosen && chosen.size > limit) {
    event.stopPropagation();
    showError(document.getElementById("preview"),
      `${chosen.name} has ${(chosen.size / 2 ** 20).toFixed(1)} MiB, more than the ${limit / 2 ** 20} MiB allowed: choose a smaller image.`);
    clearFile();
  } else if (chosen) {
    fileName.textContent = chosen.name;
    for (const radio of form.querySelectorAll("input[name=sample]")) radio.checked = false;
  } else {
    clearFile();
  }
});

for (const radio of form.querySelectorAll("input[name=sample]")) {
  radio.addEventListener("change", clearFile);
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
  const isBelowView = result.getBoundingClientRect().top > 0.6 * window.innerHeight;
  if (result.id === "result" && isBelowView) result.scrollIntoView();
});
// Opened while the model warms up: retry until the preview appears.
document.body.addEventListener("htmx:afterSwap", (event) => {
  const target = event.detail.target;
  if (target.id === "preview" && target.querySelector("[data-error=starting]")) {
    setTimeout(() => htmx.trigger(target, "retry"), 1000);
  }
});
for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.body.addEventListener(name, (event) => {
    showError(event.detail.target, "The service cannot be reached. Is it still running?");
  });
}
