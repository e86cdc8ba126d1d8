// Random patterns with Java's own answers. The first line holds the names asked about, every other line a pattern, `ok` or
// `error`, and the names it matches as a whole; all separated by tabs, the empty name written <empty>.
//
//   java dev/oracle/RandomPatterns.java 800 > src/topics/pattern/java-random.tsv

import java.util.Random;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

public class RandomPatterns {
    static final String[] PARTS = {
        "a", "b", ".", "-", "_", "\\.", "\\-", "\\d", "\\w", "\\W", "[", "]", "(", ")", "|", "*", "+", "?", "^", "$", "{2}", "{1,2}", "{", "}",
        "(?:", "(?!", "(?=", "(?<!", "(?<=", "(?>", "(?i)", "(?-i)", "(?i:", "\\Q", "\\E", "&&", "&", "[^", "a-b", "-", "\\1", "\\p{Lower}",
        "\\P{Alpha}", "\\x61", "A", "1", "~", "#", ":", "\\b", "\\B", "\\A", "\\z", "++", "*+", "??", "[:", "\\h", "\\S",
    };

    static final String[] NAMES = {
        "", "a", "b", "ab", "ba", "aa", "aab", "abab", "A", "AB", "a.b", "a-b", "a_b", "1", "a1", "-", ".", "_", "~", "#", ":", "&", "[",
        "]", "{", "}", "{2}", "a{", "aaaa", "bbbb", "a]", "a}",
    };

    public static void main(String[] args) {
        StringBuilder head = new StringBuilder("names");
        for (String name : NAMES) {
            head.append('\t').append(name.isEmpty() ? "<empty>" : name);
        }
        System.out.println(head);
        Random random = new Random(20260730);
        int wanted = Integer.parseInt(args[0]);
        while (wanted > 0) {
            StringBuilder pattern = new StringBuilder();
            for (int parts = 1 + random.nextInt(8); parts > 0; parts--) {
                pattern.append(PARTS[random.nextInt(PARTS.length)]);
            }
            StringBuilder line = new StringBuilder(pattern).append('\t');
            int matches = 0;
            try {
                Pattern compiled = Pattern.compile(pattern.toString());
                line.append("ok");
                for (String name : NAMES) {
                    if (compiled.matcher(name).matches()) {
                        matches++;
                        line.append('\t').append(name.isEmpty() ? "<empty>" : name);
                    }
                }
            } catch (PatternSyntaxException refused) {
                line.append("error");
            }
            // Most random patterns are refused or match nothing, which says little.
            if (matches > 0 || random.nextInt(20) == 0) {
                System.out.println(line);
                wanted--;
            }
        }
    }
}
