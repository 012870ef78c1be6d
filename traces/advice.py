"""What people are told who have to capture or to export a trace again."""

EXPORT_COMMAND = "nsys export --type sqlite --include-json true -o NEW.sqlite REPORT.nsys-rep"
CAPTURE_FLAGS = "nsys profile --trace cuda,nvtx --cuda-graph-trace=node"
GRAPH_ADVICE = "capture with --cuda-graph-trace=node"
