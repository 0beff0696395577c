package textfile

import "bytes"

// InterpreterFault returns a text that explains why Linux can't execute a script that begins with these bytes, or "". It detects only a #! line that ends in
// a carriage return. The kernel or env(1) takes the carriage return for a part of the interpreter's name or of its option, and reports "no such file".
func InterpreterFault(start []byte) string {
	line, _, ended := bytes.Cut(start, []byte("\n"))
	if !ended || !bytes.HasPrefix(line, []byte("#!")) || !bytes.HasSuffix(line, []byte("\r")) {
		return ""
	}
	return "its #! line ends in a carriage return, as saved on Windows, which becomes a part of the interpreter's name; save the file with LF line ends (sed -i 's/\\r$//')"
}
