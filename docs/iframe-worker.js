// A page that is opened as a file may not start a worker: the search then runs in a frame.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = data => this.deliver(this, data);
      const script = this.inside.document.createElement("script");
      script.src = url;
      this.loaded = new Promise(resolve => { script.onload = resolve; });
      this.inside.document.body.append(script);
    }
    postMessage(data) { this.loaded.then(() => this.deliver(this.inside, data)); }
    deliver(to, data) { // after what runs now, as between threads
      setTimeout(() => {
        const event = new MessageEvent("message", { data: structuredClone(data) });
        if (to === this) this.onmessage?.(event);
        to.dispatchEvent(event);
      });
    }
    terminate() { this.frame.remove(); }
  };
