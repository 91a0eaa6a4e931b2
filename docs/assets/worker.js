// Search runs in a worker, which a browser does not start for pages opened from a folder (file:).
// There a hidden frame runs the same script.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, document.baseURI);
      this.loaded = new Promise(resolve => (script.onload = resolve));
      frame.contentDocument.body.append(script);
    }

    async postMessage(data) {
      await this.loaded;
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
  window.Worker = window.IFrameWorker;
}
