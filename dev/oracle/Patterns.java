// Prints Java's own answer for each pattern of the list: the names it matches as a whole, or that it is refused.
// Columns are separated by tabs: pattern, then `error` or `ok` and the matching names.
//
//   java dev/oracle/Patterns.java > src/topics/pattern/java-answers.tsv

import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

public class Patterns {
    static final String[] NAMES = {
        "a", "b", "A", "B", "x", "h", "3", "_", "-", ".", "+", ":", "&", "~", "{", "}", "]", "aa", "ab", "aaaa", "a}", "a]",
        "a{1", "orders", "orders.eu", "orders-eu", "orders_eu", "payments", "test.orders", "ORDERS", "a.b", "a-b", "abab",
        "orders.dlq", "x.y.z", "topic1", "topic12", "__x", "a|b", "",
    };

    static final String[] PATTERNS = {
        ".*", "orders", "orders.*", "orders|payments", "orders\\..*", "a|", "|a", "(a|b)", "(a)(b)", "topic[0-9]", "topic\\d+",
        "(?!test).*", "^(?!test\\.).*$", ".*(?<!\\.dlq)", "(?=o).*", "(?<=)a", "a++", "a*+a", "a?+a", "(?>a|ab)", "a{2}", "a{2,}",
        "(.)\\1", "(ab)\\1", "(?<n>a)\\k<n>", "\\Qa.b\\E", "\\Qa|b\\E", "\\Qa.b", "\\Qa\\E+", "[\\Qa-c\\E]", "[\\w-.]+", "[a-z-.]+",
        "[\\w-]+", "[.-_]", "[-a]", "[a-]", "[a\\-z]", "[a&b]", "[a&&b]", "[a-z&&[^bc]]", "[^a-z&&b]", "[a[bc]x]", "[[:alpha:]]",
        "[[:alpha:]_]+", "[a~~b]", "[a-z--x]", "[+--]", "[]a]", "[^]a]", "a}", "a]", "\\p{Lower}", "\\p{Upper}+", "\\P{Lower}",
        "[\\p{Lower}_]+", "[^\\p{Punct}]", "\\p{Punct}", "\\p{Alnum}+", "\\p{IsLower}", "\\p{Lu}", "\\pL", "\\PL", "\\p{javaLowerCase}",
        "\\p{IsAlphabetic}+", "\\h", "\\H", "\\v", "\\R", "\\X", "\\0101", "\\x41", "\\u0041", "\\x{41}", "\\cA", "\\_", "\\-", "\\:", "\\&",
        "\\y", "\\K", "\\E", "(?i)orders", "(?i)a|b", "a|(?i)b", "(?i:a)b", "(?-i)a", "(?U)a+", "(?d)a", "(?u)a", "(?is-m)A.*", "(?x) a b",
        "*", "a**", "a|*", "(*)", "+a", "?", "a{1|3}", "x{,3}", "a{", "{", "(", ")", "a)", "[", "[a", "(?P<n>a)", "(?#c)a", "a*?", "a+?b",
        "a*?+", "a??", "\\A.b\\z", "\\Aa\\Z", "\\Ga", "\\ba.*\\b", "(?:a)", "(?:a|b)+", "((a)(b))\\1", "\\w+\\.\\w+", "\\W", "\\S+", "\\D+",
        "[^\\W_]+", "[\\d.]+", ".", "..", ".+\\..+", "_{2}.*", "__.*", ".*[\\-\\.]internal", ".*\\.replica", "a&b", "~", "#", "a-b", "[a-\\d]",
    };

    public static void main(String[] args) {
        for (String pattern : PATTERNS) {
            StringBuilder line = new StringBuilder(pattern).append('\t');
            try {
                Pattern compiled = Pattern.compile(pattern);
                line.append("ok");
                for (String name : NAMES) {
                    if (compiled.matcher(name).matches()) {
                        line.append('\t').append(name.isEmpty() ? "<empty>" : name);
                    }
                }
            } catch (PatternSyntaxException refused) {
                line.append("error");
            }
            System.out.println(line);
        }
    }
}
