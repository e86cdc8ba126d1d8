// Prints what java.util.Properties reads from a file: keys in order, everything beyond printable ASCII escaped.
//
//   java dev/oracle/PropertiesDump.java src/config/testdata/oracle.properties > src/config/testdata/oracle.expected

import java.io.FileInputStream;
import java.io.IOException;
import java.util.Properties;
import java.util.TreeSet;

public class PropertiesDump {
    static String escaped(String text) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '\\') {
                out.append("\\\\");
            } else if (c == ' ' && i == 0) {
                out.append("\\ ");
            } else if (c >= ' ' && c <= '~') {
                out.append(c);
            } else {
                out.append(String.format("\\u%04x", (int) c));
            }
        }
        return out.toString();
    }

    public static void main(String[] args) throws IOException {
        Properties properties = new Properties();
        try (FileInputStream in = new FileInputStream(args[0])) {
            properties.load(in);
        }
        for (String key : new TreeSet<>(properties.stringPropertyNames())) {
            System.out.println(escaped(key) + "=" + escaped(properties.getProperty(key)));
        }
    }
}
