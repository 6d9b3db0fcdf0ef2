// Search in pages that are opened from a folder: browsers start no worker on file://, so the
// worker's script runs in a hidden frame. Messages take a turn of the event loop, as a worker's do.
// The file's name keeps zensical from fetching such a script elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) =>
        setTimeout(() => {
          const event = new MessageEvent("message", { data: structuredClone(data) });
          this.dispatchEvent(event);
          if (this.onmessage) this.onmessage(event);
        });
      const script = inside.document.createElement("script");
      script.src = url;
      this.ready = new Promise((done, failed) => {
        script.onload = done;
        script.onerror = failed;
      });
      inside.document.body.append(script);
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      const deliver = () => inside.dispatchEvent(new inside.MessageEvent("message", { data: structuredClone(data) }));
      this.ready.then(() => setTimeout(deliver));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
