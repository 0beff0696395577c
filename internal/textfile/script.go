package textfile

import "bytes"

// InterpreterFault returns the reason for which Linux does not execute a script that begins with these bytes, or "". Only a #! line that ends in a carriage return is
// looked for: the kernel, or env(1), takes that for the last character of the interpreter's name or of its option, and says "no such file".
func InterpreterFault(start []byte) string {
	line, _, ended := bytes.Cut(start, []byte("\n"))
	if !ended || !bytes.HasPrefix(line, []byte("#!")) || !bytes.HasSuffix(line, []byte("\r")) {
		return ""
	}
	return "its #! line ends in a carriage return, as saved on Windows, which becomes a part of the interpreter's name; save the file with LF line ends (sed -i 's/\\r$//')"
}
