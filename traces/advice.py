"""What people are told who have to capture or to export a trace again."""

EXPORT_COMMAND = "nsys export --type sqlite --include-json true -o NEW.sqlite REPORT.nsys-rep"
CAPTURE_FLAGS = "nsys profile --trace cuda,nvtx --cuda-graph-trace=node"
GRAPH_ADVICE = "capture with --cuda-graph-trace=node"
LOST_ADVICE = (
    "capture less at a time (nsys profile --duration or --capture-range) with buffers that grow "
    "(--cuda-flush-interval=1000), export all of it"
)
UNEQUAL_ADVICE = "give the whole files of one run"
